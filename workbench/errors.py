"""The one expected error: a sentence and a next step."""

import errno
import re
from typing import Any

from workbench.words import say


class WorkbenchError(Exception):
    """Something the user can act on. `message` and `hint` are templates that `values` fill when shown."""

    def __init__(self, message: str, hint: str = "", **values: Any):
        super().__init__(message)
        self.message = message
        self.hint_template = hint
        self.values = values

    def __str__(self) -> str:
        return say(self.message, **self.values)

    @property
    def hint(self) -> str:
        return say(self.hint_template, **self.values) if self.hint_template else ""


NO_MEMORY = re.compile(
    "can't allocate memory|cannot allocate memory|out of memory|bad_alloc|failed to map segment|can't start new thread",
    re.IGNORECASE,
)


def of_system(error: BaseException) -> WorkbenchError | None:
    """The sentence for what the system had too little of, by whichever library it was met; None for other errors."""
    text = str(error)
    said = re.search(r"os error (\d+)", text)  # as Rust's libraries put it
    code = getattr(error, "errno", None) or (int(said[1]) if said else None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        return WorkbenchError("The disk is full.", "Free some space, or let LATHE_HOME name a folder on another disk.")
    if code == errno.ENOMEM or isinstance(error, MemoryError) or NO_MEMORY.search(text):
        return WorkbenchError("There is not enough memory.", "Close other programs, or use fewer calibration tokens.")
    return None


def first_line(error: BaseException) -> str:
    """What an error of somebody else's says, as a part of a sentence; its type where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, lines), type(error).__name__).rstrip(".:")
