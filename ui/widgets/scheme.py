"""How a layer is quantized, in the words of the papers and of vLLM."""

from workbench.recipe import AUTO, WHOLE_ROW
from workbench.words import Sentence, say

# value → (long name, mark in a narrow cell)
METHODS = {
    "awq+gptq": (Sentence("AWQ + GPTQ"), "A+G"),
    "awq": (Sentence("AWQ"), "AWQ"),
    "gptq": (Sentence("GPTQ"), "GPTQ"),
    "rtn": (Sentence("Plain rounding"), "RTN"),
    "keep": (Sentence("Keep 16 bit"), "16"),
}


def mark(method: str, bits: int) -> str:
    """As short as a cell needs: "AWQ 4", "16"."""
    short = METHODS[method][1]
    return short if method == "keep" else f"{short} {bits}"


def scheme(method: str, bits: int, group_size: int, symmetric: bool) -> str:
    """In full: "GPTQ · 4 bit · group 64 · symmetric"."""
    if method == "keep":
        return say("kept in 16 bit")
    return " · ".join(
        (
            str(METHODS[method][0]),
            say("{bits} bit", bits=bits),
            _group(group_size),
            say("symmetric") if symmetric else say("with zero point"),
        )
    )


def _group(size: int) -> str:
    if size == AUTO:
        return say("largest group that fits")
    return say("whole row") if size == WHOLE_ROW else say("group {size}", size=size)
