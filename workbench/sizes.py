"""How many bytes a quantized checkpoint will take, from shapes alone.

The layout is compressed-tensors' `pack-quantized`: weights packed along the inputs into 32-bit words, scales in the
weights' own type, zero points of asymmetric layers packed along the outputs, and the shape as two 64-bit numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.recipe import WHOLE_ROW, Choice

_WORD = 32  # bits
_TENSOR_HEADER = 100  # bytes of JSON that one tensor takes in a header beside its name


@dataclass(frozen=True, slots=True)
class Planned:
    """One linear with its choice, the group size a number or -1, and its stored size in bytes without a bias."""

    linear: Linear
    choice: Choice
    bytes: int


def planned(model: Model, choices: Iterable[tuple[Linear, Choice]]) -> tuple[Planned, ...]:
    """Each linear with its choice and size."""
    weights = {tensor.name: tensor for tensor in model.tensors}
    result = []
    for linear, choice in choices:
        stored = weights.get(f"{linear.name}.weight")
        if choice.kept or stored is None:
            size = stored.bytes if stored else 0
        else:
            size = packed(linear, choice, stored.bytes // max(1, stored.elements))
        result.append(Planned(linear, choice, size))
    return tuple(result)


def packed(linear: Linear, choice: Choice, scale_bytes: int = 2) -> int:
    """Bytes of one packed linear: words, scales, zero points and shape."""
    rows, columns = linear.out_features, linear.in_features
    per_word = _WORD // choice.bits
    groups = 1 if choice.group_size == WHOLE_ROW else -(-columns // choice.group_size)
    words = rows * -(-columns // per_word)
    zero_points = 0 if choice.symmetric else -(-rows // per_word) * groups
    return 4 * words + scale_bytes * rows * groups + 4 * zero_points + 16


def checkpoint(model: Model, planned: Iterable[Planned]) -> int:
    """Bytes of the safetensors files that the plan will write, headers included."""
    replaced = {f"{entry.linear.name}.weight": entry for entry in planned if not entry.choice.kept}
    total = 8
    for tensor in model.tensors:
        if model.tied and tensor.name == "lm_head.weight":
            continue  # a tied head is stored once, as the embedding
        if entry := replaced.get(tensor.name):
            parts = 3 if entry.choice.symmetric else 4
            total += entry.bytes + parts * (_header(tensor) + 10)
        else:
            total += tensor.bytes + _header(tensor)
    return total


def _header(tensor: Tensor) -> int:
    return len(tensor.name) + _TENSOR_HEADER - 10
