"""How one linear layer is quantized, each option declared once."""

from dataclasses import dataclass

from workbench.errors import WorkbenchError
from workbench.option import check_closed, option

AUTO = 0
WHOLE_ROW = -1
GROUP_SIZES = (128, 64, 32)  # what vLLM's kernels take on every device, coarsest first
BITS = (2, 3, 4, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """How one linear layer is quantized; "keep" leaves it in 16 bit and the other fields unused.

    `order` (of GPTQ's columns), `damping` (of its Hessian), `refine` (what GPTQ found), `clip` and `scale` (AWQ's)
    count where the method uses them. The columns are always stored in their own order, so `order` never reaches the
    checkpoint.
    """

    method: str = option("gptq", "Method", "awq", "gptq", "awq+gptq", "rtn", "keep")
    bits: int = option(4, "Bits", *BITS)
    group_size: int = option(AUTO, "Group size", AUTO, 32, 64, 128, WHOLE_ROW)
    symmetric: bool = option(True, "Symmetric", True, False)
    order: str = option("static", "Column order", "none", "static")
    damping: float = option(0.01, "Damping")
    clip: bool = option(True, "Clip search", True, False)
    scale: bool = option(True, "Scale search", True, False)
    refine: bool = option(False, "Refinement", True, False)

    def __post_init__(self) -> None:
        check_closed(self)
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
