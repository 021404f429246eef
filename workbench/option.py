"""One thing that the user can choose: a field of a dataclass that carries its label and its possible values."""

from dataclasses import field, fields
from typing import Any

from workbench.errors import WorkbenchError
from workbench.words import say


def option(default: Any, label: str, *values: Any) -> Any:
    """A field with its label (a template) and, where the choice is closed, its values."""
    return field(default=default, metadata={"label": label, "values": values})


def label_of(owner: Any, name: str) -> str:
    """The label of a field, in the chosen language."""
    return say(next(each for each in fields(owner) if each.name == name).metadata["label"])


def is_possible(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether a closed choice has this value; an open one (no values) has all."""
    # True equals 1 and 4.0 equals 4, but neither is what the file should say.
    return not values or any(value == known and type(value) is type(known) for known in values)


def check_closed(chosen: Any) -> None:
    """Raise WorkbenchError at the first field whose value is none of its own."""
    for each in fields(chosen):
        values = each.metadata.get("values", ())
        if not is_possible(value := getattr(chosen, each.name), values):
            raise WorkbenchError(
                "{label} cannot be {value}.", "Choose one of {values}.",
                label=say(each.metadata["label"]), value=value, values=", ".join(map(str, values)),
            )  # fmt: skip
