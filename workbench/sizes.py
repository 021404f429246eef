"""How many bytes a quantized checkpoint will take, from shapes alone.

The layout is compressed-tensors' `pack-quantized`: weights packed along the inputs into 32-bit words, scales in the
weights' own type, zero points of asymmetric layers packed along the outputs, and the shape as two 64-bit numbers.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.recipe import WHOLE_ROW, Choice

_WORD = 32  # bits


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
            size = sum(part.bytes for part in packed(linear, choice, stored))
        result.append(Planned(linear, choice, size))
    return tuple(result)


def packed(linear: Linear, choice: Choice, weight: Tensor) -> Iterator[Tensor]:
    """The tensors that take the place of `weight`."""
    rows, columns = linear.out_features, linear.in_features
    per_word = _WORD // choice.bits
    groups = 1 if choice.group_size == WHOLE_ROW else -(-columns // choice.group_size)
    width = weight.bytes // max(1, weight.elements)
    parts = [
        ("weight_packed", "I32", (rows, -(-columns // per_word)), 4),
        ("weight_scale", weight.dtype, (rows, groups), width),
        ("weight_shape", "I64", (2,), 8),
    ]
    if not choice.symmetric:
        parts.append(("weight_zero_point", "I32", (-(-rows // per_word), groups), 4))
    for name, dtype, shape, size in parts:
        part = Tensor(f"{linear.name}.{name}", dtype, shape, "")
        yield Tensor(part.name, dtype, shape, "", bytes=part.elements * size)


def checkpoint(model: Model, planned: Iterable[Planned]) -> int:
    """Bytes of the safetensors files that the plan will write, headers included."""
    replaced = {f"{entry.linear.name}.weight": entry for entry in planned if not entry.choice.kept}
    tensors: list[Tensor] = []
    for tensor in model.tensors:
        if entry := replaced.get(tensor.name):
            tensors += packed(entry.linear, entry.choice, tensor)
        elif not (model.tied and tensor.name == "lm_head.weight"):  # stored once, as the embedding
            tensors.append(tensor)
    return _header(tensors) + sum(tensor.bytes for tensor in tensors)


def _header(tensors: Iterable[Tensor]) -> int:
    """Bytes of the length and the JSON before the values, as safetensors writes them: the widest types first."""
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in sorted(tensors, key=lambda part: (-part.bytes // max(1, part.elements), part.name)):
        end = at + tensor.bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (at, end)}
        at = end
    length = len(json.dumps(header, separators=(",", ":")))
    return 8 + length + -length % 8
