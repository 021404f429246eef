"""What a killed window and guard left behind, told from strangers by pid and start time."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench import guard, json_file, paths

KILLED_S = 3.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its guard; `started` in clock ticks after boot."""

    pid: int
    started: int
    command: str

    @property
    def since(self) -> float:
        """When it started, in seconds of time.time()."""
        ticks = os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + self.started / ticks


def folder() -> Path:
    """Where each guard keeps the record of its tree while it lives."""
    return paths.inside_home("running")


def find() -> list[Leftover]:
    """The living processes of all records whose guard is gone; records without any go, with what their trees left."""
    found: dict[int, Leftover] = {}
    for record in folder().glob("*.json"):
        if _guarded(record):
            continue
        if living := read(record):
            found |= {each.pid: each for each in living}
        else:
            forget(record)
    return list(found.values())


def read(record: Path) -> list[Leftover]:
    """The processes of one record that still live, and what they started since."""
    content = _content(record)
    if content.get("boot") != guard.boot():
        return []
    found: dict[int, Leftover] = {}
    for pid, started, _ in content["processes"]:
        if (now := guard.identity(pid)) and now[1] == started:
            for each in (now, *map(guard.identity, guard.descendants(pid))):
                if each:
                    found[each[0]] = Leftover(*each)
    return list(found.values())


def end(processes: Iterable[Leftover], grace_s: float = 5.0) -> None:
    """Terminate, wait, kill. Blocks for the grace at most, and a moment for the kernel."""
    left = list(processes)
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILLED_S)):
        for process in left:
            with _opened(process) as handle:
                if handle is not None:
                    signal.pidfd_send_signal(handle, number)
        deadline = time.monotonic() + wait_s
        while (left := [process for process in left if _lives(process)]) and time.monotonic() < deadline:
            time.sleep(0.05)


def forget(record: Path) -> None:
    """Remove the record of a tree that has ended, and what the tree left."""
    guard.tidy(_content(record))
    record.unlink(missing_ok=True)


def _lives(process: Leftover) -> bool:
    now = guard.identity(process.pid)
    return now is not None and now[1] == process.started


@contextmanager
def _opened(process: Leftover) -> Iterator[int | None]:
    """A handle of exactly this process, so that a pid given away in between is never signalled; None: it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        yield None
        return
    try:
        yield handle if _lives(process) else None
    finally:
        os.close(handle)


def _guarded(record: Path) -> bool:
    content = _content(record)
    if content.get("boot") != guard.boot():
        return False
    pid, started, _ = content["guard"]
    return (now := guard.identity(pid)) is not None and now[1] == started


def _content(record: Path) -> dict:
    try:
        return json_file.read(record)
    except (OSError, ValueError):
        return {}
