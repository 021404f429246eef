"""Who holds this machine's memory: an entry for each running job and engine of every Lathe of this user.

An entry states what it needs at most; what it holds is measured. What was stated and is not taken yet is not free.
"""

import asyncio
import fcntl
import json
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

from workbench import figures, guard, memory, paths
from workbench.memory import Measured, Room
from workbench.words import Sentence

KINDS = {
    "engine": Sentence("Engine"),
    "quantize": Sentence("Quantization"),
    "quality": Sentence("Quality"),
    "statistics": Sentence("Calibration statistics"),
    "sensitivity": Sentence("Sensitivity scan"),
    "whatif": Sentence("Trials"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """`needs` in bytes by device; empty where they are not known. `owner` is the Lathe that holds it, `root` the
    process below which its work runs, both as pid and start in clock ticks after boot; (0, 0) before that runs."""

    id: str
    kind: str
    name: str
    needs: Mapping[str, int]
    since: float
    owner: tuple[int, int]
    boot: str
    root: tuple[int, int] = (0, 0)

    @property
    def title(self) -> Sentence:
        return Sentence("{kind} of {name}", {"kind": KINDS.get(self.kind, self.kind), "name": self.name})


@dataclass(frozen=True, slots=True)
class Held:
    """An entry with what it holds, in bytes by device: `used` as measured, absent where nobody tells; `pending` what
    it will still take."""

    entry: Entry
    used: Mapping[str, int]
    pending: Mapping[str, int]

    def gives(self, device: str) -> int:
        """What its end gives back."""
        return self.used.get(device, 0) + self.pending.get(device, 0)


@dataclass(frozen=True, slots=True)
class Shortage:
    """`device` has `left` bytes that nobody holds or will take, of `needed`; `standing` are those whose end helps.
    `left_on` is the same of every device."""

    device: str
    room: Room
    needed: int
    left_on: Mapping[str, int]
    standing: tuple[Held, ...]

    @property
    def left(self) -> int:
        return self.left_on[self.device]

    @property
    def missing(self) -> int:
        return self.needed - self.left

    @property
    def stops(self) -> list[tuple[Held, ...]]:
        """Which to end: each that is enough alone, else all of them together."""
        enough = [(held,) for held in self.standing if held.gives(self.device) >= self.missing]
        return enough or [self.standing]

    @property
    def values(self) -> dict[str, object]:
        return {
            "needed": figures.bytes_of(self.needed), "left": figures.bytes_of(max(0, self.left)),
            "device": self.room.name, "holders": ", ".join(str(held.entry.title) for held in self.standing),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Book:
    """All that is held, and the room there is."""

    held: tuple[Held, ...]
    rooms: Mapping[str, Room]

    def left(self, device: str) -> int:
        """What is free and nobody will still take; below 0 where more was stated than there is."""
        return self.rooms[device].free - sum(held.pending.get(device, 0) for held in self.held)

    def shortage(self, needs: Mapping[str, int]) -> Shortage | None:
        """Where most is missing; None where everything fits. Devices that are not here are nobody's."""
        left_on = {device: self.left(device) for device in self.rooms}
        found = [
            Shortage(device, self.rooms[device], needed, left_on, self._standing(device))
            for device, needed in needs.items()
            if device in self.rooms and needed > left_on[device]
        ]
        return max(found, key=lambda shortage: shortage.missing, default=None)

    def without(self, ids: Collection[str]) -> "Book":
        """As it will be when these have ended."""
        going = [held for held in self.held if held.entry.id in ids]
        rooms = {
            device: replace(room, free=room.free + sum(held.used.get(device, 0) for held in going))
            for device, room in self.rooms.items()
        }
        return Book(tuple(held for held in self.held if held.entry.id not in ids), rooms)

    def _standing(self, device: str) -> tuple[Held, ...]:
        helping = [held for held in self.held if held.gives(device) > 0]
        return tuple(sorted(helping, key=lambda held: held.gives(device), reverse=True))


_own: dict[str, asyncio.Task] = {}  # what this process runs, by entry
_whole: ContextVar[asyncio.Task | None] = ContextVar("whole", default=None)


def book() -> Book:
    """What is held now, measured; blocks for some milliseconds a process."""
    return balanced(entries(), measure())


def measure() -> Measured:
    """The devices and the trees of all that is entered."""
    return memory.measure(entry.root[0] for entry in entries())


def balanced(found: Collection[Entry], measured: Measured) -> Book:
    """Entries and figures brought together; an entry that came after the measuring has taken nothing yet."""
    hidden = {
        device: sum(entry.needs.get(device, 0) for entry in found if device not in _used(entry, measured))
        for device in measured.rooms
    }
    held = []
    for entry in found:
        used, pending = _used(entry, measured), {}
        for device, need in entry.needs.items():
            if device in used:
                pending[device] = max(0, need - used[device])
            elif device in measured.rooms:
                # Nobody tells whose it is: what is in use there counts as taken by those who stated a need.
                taken = min(1.0, measured.rooms[device].untold / max(1, hidden[device]))
                pending[device] = int(need * (1 - taken))
        held.append(Held(entry, used, pending))
    return Book(tuple(held), measured.rooms)


def entries() -> list[Entry]:
    """All that is entered, oldest first. What a dead Lathe left, or cannot be read, is removed."""
    found = []
    for file in _folder().glob("*.json"):
        entry = _read(file)
        if entry is None or entry.boot != guard.boot() or not _lives(entry.owner):
            file.unlink(missing_ok=True)
        else:
            found.append(entry)
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
        state = balanced(entries(), measured)
        short = state.shortage(entry.needs)
        if short and (whole := _whole.get()):  # parts of one whole do not stand in each other's way
            others = tuple(held for held in short.standing if _own.get(held.entry.id) is not whole)
            short = replace(short, standing=others)
        if short and short.standing and not anyway:
            ending = {key for key, task in _own.items() if task.cancelling()}
            return False, state.without(ending).shortage(entry.needs) or replace(short, standing=())
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
        os.kill(entry.root[0], signal.SIGTERM)


def stand_together() -> None:
    """What this task enters from now on, also by tasks that it starts, is one whole: to stop a part stops this task."""
    _whole.set(asyncio.current_task())


def is_own(entry: Entry) -> bool:
    """Whether this very process runs it."""
    return entry.id in _own


def _used(entry: Entry, measured: Measured) -> Mapping[str, int]:
    if not entry.root[0] or entry.root[0] not in measured.used:  # it did not run when that was measured
        return dict.fromkeys(entry.needs, 0)
    return measured.used[entry.root[0]]


def _folder() -> Path:
    return paths.inside_home("ledger")


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time enters; the system lets go of the lock however that ends."""
    with (_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(entry: Entry) -> None:
    """In one step: others read at any moment."""
    file = _folder() / f"{entry.id}.json"
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(entry), ensure_ascii=False), encoding="utf-8")
    partial.replace(file)


def _read(file: Path) -> Entry | None:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        entry = Entry(**stored)
        return replace(
            entry,
            needs={str(device): int(need) for device, need in entry.needs.items()},
            since=float(entry.since),
            owner=tuple(map(int, entry.owner)),
            root=tuple(map(int, entry.root)),
        )
    except (OSError, ValueError, TypeError, AttributeError):
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
