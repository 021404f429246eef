"""One process at a time, the others waiting: a lock that the system drops with the process, however that ends."""

import fcntl
import time
from collections.abc import Iterator
from typing import TextIO

from workbench.events import Event, Note

_PERIOD_S = 0.3


def hold(file: TextIO, waiting: Note) -> Iterator[Event]:
    """Hold the lock on `file`, until it closes, when this ends; `waiting` is said once if another process has it."""
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                yield waiting
            told = True
            time.sleep(_PERIOD_S)
