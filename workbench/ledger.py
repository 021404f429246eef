"""Who holds this machine's memory: an entry for each running job and engine of every Lathe of this user.

An entry states what it needs at most; what it holds is measured. What was stated and is not taken yet is not free.
"""

import asyncio
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, fields, replace
from pathlib import Path
from uuid import uuid4

from workbench import guard, json_file, memory, paths
from workbench.book import Book, Entry, Shortage, balanced
from workbench.memory import Measured

FORGOTTEN_S = 30 * 86_400

_own: dict[str, asyncio.Task] = {}  # what this process runs, by entry
_whole: ContextVar[asyncio.Task | None] = ContextVar("whole", default=None)


def book() -> Book:
    """What is held now, measured; blocks for some milliseconds a process."""
    return balanced(entries(), measure())


def measure() -> Measured:
    """The devices and the trees of all that is entered."""
    return memory.measure(entry.root[0] for entry in entries())


def entries() -> list[Entry]:
    """All that is entered on this machine, oldest first. What a dead Lathe left, or cannot be read, is removed.

    What another boot left may be another machine's that shares this folder: it counts nothing and stays for a month.
    """
    found, boot = [], guard.boot()
    for file in _folder().glob("*.json"):
        entry = _read(file)
        if entry and entry.boot == boot and _lives(entry.owner):
            found.append(entry)
        elif entry is None or entry.boot == boot or time.time() - entry.since > FORGOTTEN_S:
            with suppress(OSError):
                file.unlink()
    return sorted(found, key=lambda entry: entry.since)


def new(kind: str, name: str, needs: Mapping[str, int]) -> Entry:
    """An entry of this process, not entered yet."""
    return Entry(uuid4().hex, kind, name, dict(needs), time.time(), _identity(os.getpid()), guard.boot())


def claim(entry: Entry, measured: Measured, anyway: bool = False) -> tuple[bool, Shortage | None]:
    """Enter it where it fits, where nobody's end would help, or `anyway`: whether it is entered, and what is short.

    Of two at once the second sees the first. What is short without anybody standing in the way comes with the end of
    what is being cancelled here.
    """
    with _alone():
        state, whole = balanced(entries(), measured), _whole.get()
        short = state.shortage(entry.needs)
        # Parts of one whole do not stand in each other's way.
        kin = {key for key, task in _own.items() if whole and task is whole}
        if short and not anyway and not {held.entry.id for held in short.standing} <= kin:
            ending = {key for key, task in _own.items() if task.cancelling()}
            left = state.without(ending).shortage(entry.needs)
            others = [held for held in left.standing if held.entry.id not in kin] if left else []
            return False, replace(left or short, standing=tuple(others))
        _write(entry)
        if task := _whole.get() or _current_task():
            _own[entry.id] = task
        return True, short


def begun(entry: Entry, pid: int) -> None:
    """Its work runs below this process from now on."""
    with _alone():
        _write(replace(entry, root=_identity(pid)))


def release(entry: Entry) -> None:
    """Its processes are gone."""
    _own.pop(entry.id, None)
    (_folder() / f"{entry.id}.json").unlink(missing_ok=True)


def stop(entry: Entry) -> None:
    """End its work: as if the user had cancelled it where it runs here, else by its process."""
    if task := _own.get(entry.id):
        task.cancel()
    elif entry.root[0] and _lives(entry.root):
        with suppress(ProcessLookupError):  # it ended by itself just now
            os.kill(entry.root[0], signal.SIGTERM)


def stand_together() -> None:
    """What this task enters from now on, also by tasks that it starts, is one whole: to stop a part stops this task."""
    _whole.set(asyncio.current_task())


def _folder() -> Path:
    return paths.inside_home("ledger")


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time enters; the system lets go of the lock however that ends."""
    with ExitStack() as stack:
        with suppress(OSError):  # a full disk must not keep a job from its start
            lock = stack.enter_context((_folder() / ".lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(entry: Entry) -> None:
    """In one step: others read at any moment. On a full disk it is not seen by them."""
    file = _folder() / f"{entry.id}.json"
    partial = file.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(asdict(entry), ensure_ascii=False), encoding="utf-8")
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)


def _read(file: Path) -> Entry | None:
    try:
        stored = json_file.read(file)
        # A newer Lathe may tell more.
        entry = Entry(**{each.name: stored[each.name] for each in fields(Entry) if each.name in stored})
        return replace(
            entry,
            kind=str(entry.kind),
            name=str(entry.name),
            needs={str(device): int(need) for device, need in entry.needs.items()},
            since=float(entry.since),
            owner=tuple(map(int, entry.owner)),
            root=tuple(map(int, entry.root)),
        )
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _identity(pid: int) -> tuple[int, int]:
    found = guard.identity(pid)
    return (found[0], found[1]) if found else (0, 0)


def _lives(process: tuple[int, int]) -> bool:
    return process[0] > 0 and _identity(process[0]) == process


def _current_task() -> asyncio.Task | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
