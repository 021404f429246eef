"""How a model stands on a device at each precision that it could have."""

from workbench.catalog.capacity import Capacity, Device, capacity
from workbench.catalog.model import Model

PRECISIONS = ("FP16", "INT8", "INT4")
USUAL_CONTEXT = 4096
_SHORTEST = 512


def precisions(model: Model) -> tuple[str, ...]:
    """What the model could be served as: every precision from 16 bit, or only what it is once quantized."""
    if model.quantization is None:
        return PRECISIONS if model.can_quantize else ("FP16",)
    return ("INT8",) if model.quantization.bits == 8 else ("INT4",)


def contexts(model: Model) -> list[int]:
    """The contexts to choose from in tokens: doubling up to the model's own."""
    longest = model.context or USUAL_CONTEXT
    steps = [_SHORTEST]
    while steps[-1] * 2 < longest:
        steps.append(steps[-1] * 2)
    return [*(step for step in steps if step < longest), longest]


def usual_context(model: Model) -> int:
    """The choice nearest to 4,096 tokens."""
    return min(contexts(model), key=lambda each: abs(each - USUAL_CONTEXT))


def by_precision(model: Model, device: Device) -> dict[str, Capacity]:
    """The capacity of each precision at the usual context."""
    context = usual_context(model)
    return {precision: capacity(model, device, precision, context) for precision in precisions(model)}
