"""Position scaling as configurations of several ages spell it."""

from dataclasses import dataclass
from typing import Any

from workbench.catalog.problem import Problem
from workbench.words import Sentence

# Kinds that stretch the configured length; the others already count it in.
_STRETCHING = {"linear", "dynamic", "yarn"}


@dataclass(frozen=True, slots=True)
class Rope:
    """`kind` is None for plain rotary positions. `factor` as configured; `context` in tokens after scaling."""

    kind: str | None
    factor: float | None
    context: int | None
    problem: Problem | None = None


def read(config: dict[str, Any], context: int | None) -> Rope:
    """The scaling in `rope_scaling` or `rope_parameters`; `context` is max_position_embeddings."""
    stored = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if isinstance(stored, dict) and "full_attention" in stored:  # one entry for each kind of layer
        stored = stored["full_attention"]
    if not isinstance(stored, dict):
        stored = {}
    kind = stored.get("rope_type") or stored.get("type")
    factor = stored.get("factor")
    factor = float(factor) if isinstance(factor, int | float) and 0 < factor < 1e9 else None
    if not kind and factor is not None:
        ignored = Problem(
            "rope_untyped",
            Sentence("A position scaling factor of {factor} is given without a type; it will be ignored.",
                     {"factor": f"{factor:g}"}),
            Sentence("Add \"rope_type\" to rope_scaling in config.json if the scaling is wanted."),
        )  # fmt: skip
        return Rope(None, None, context, ignored)
    if not kind or kind in ("default", "mrope"):
        return Rope(None, None, context)
    if kind in _STRETCHING and factor and context:
        base = stored.get("original_max_position_embeddings") if kind == "yarn" else None
        context = int((base if isinstance(base, int) else context) * factor)
    return Rope(str(kind), factor, context)
