"""The one expected error: a sentence and a next step."""

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


def first_line(error: BaseException) -> str:
    """What an error of somebody else's says, as a part of a sentence; its type where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, lines), type(error).__name__).rstrip(".:")
