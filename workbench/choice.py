"""How one linear layer is quantized, each option declared once with its label and its values."""

from dataclasses import dataclass, field, fields
from typing import Any

from workbench.errors import WorkbenchError
from workbench.words import say

AUTO = 0
WHOLE_ROW = -1
GROUP_SIZES = (128, 64, 32)  # what vLLM's kernels take on every device, coarsest first
BITS = (2, 3, 4, 8)


def choice(default: Any, label: str, *values: Any) -> Any:
    """A field with its label (a template) and, where the choice is closed, its values."""
    return field(default=default, metadata={"label": label, "values": values})


def label_of(owner: Any, name: str) -> str:
    """The label of a field, in the chosen language."""
    return say(next(option for option in fields(owner) if option.name == name).metadata["label"])


def _check(choice: Any) -> None:
    for option in fields(choice):
        values = option.metadata["values"]
        value = getattr(choice, option.name)
        # True equals 1 and 4.0 equals 4, but neither is what the file should say.
        if values and not any(value == known and type(value) is type(known) for known in values):
            raise WorkbenchError(
                "{label} cannot be {value}.", "Choose one of {values}.",
                label=label_of(choice, option.name), value=value, values=", ".join(map(str, values)),
            )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """How one linear layer is quantized; "keep" leaves it in 16 bit and the other fields unused.

    `order` (of GPTQ's columns), `damping` (of its Hessian), `clip` and `scale` (AWQ's) count where the method uses
    them. The columns are always stored in their own order, so `order` never reaches the checkpoint.
    """

    method: str = choice("gptq", "Method", "awq", "gptq", "awq+gptq", "rtn", "keep")
    bits: int = choice(4, "Bits", *BITS)
    group_size: int = choice(AUTO, "Group size", AUTO, 32, 64, 128, WHOLE_ROW)
    symmetric: bool = choice(True, "Symmetric", True, False)
    order: str = choice("static", "Column order", "none", "static")
    damping: float = choice(0.01, "Damping")
    clip: bool = choice(True, "Clip search", True, False)
    scale: bool = choice(True, "Scale search", True, False)

    def __post_init__(self) -> None:
        _check(self)
        if type(self.damping) not in (int, float) or not 0 < self.damping <= 1:
            raise WorkbenchError(
                "Damping cannot be {value}.", "Choose a number above 0 and up to 1, such as 0.01.", value=self.damping
            )
        if self.bits == 8 and not self.symmetric and self.method != "keep":
            raise WorkbenchError("Asymmetric weights need at most 4 bits.", "Choose 4 bits, or symmetric with 8 bits.")

    @property
    def kept(self) -> bool:
        return self.method == "keep"


PLAIN = Choice()
KEEP = Choice(method="keep")
