"""How many bytes a quantized checkpoint will take, from shapes alone.

The layout is compressed-tensors' `pack-quantized`: weights packed along the inputs into 32-bit words, scales in the
weights' own type, zero points of asymmetric layers packed along the outputs, and the shape as two 64-bit numbers.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

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


def per_word(bits: int) -> int:
    """How many values a word of 32 bits takes; a value never lies across two words."""
    return _WORD // bits


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


@dataclass(frozen=True, slots=True)
class Part:
    """One stored tensor in the place of a weight; `name` is the last part of its name, `width` a value's bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int
    bytes: int


def packed(linear: Linear, choice: Choice, weight: Tensor) -> tuple[Part, ...]:
    """What takes the place of `weight`."""
    width = weight.bytes // max(1, weight.elements)
    return _parts(
        linear.out_features, linear.in_features, choice.bits, choice.group_size, choice.symmetric, weight.dtype, width
    )


@cache  # a model has few shapes and tens of thousands of layers
def _parts(
    rows: int, columns: int, bits: int, group_size: int, symmetric: bool, dtype: str, width: int
) -> tuple[Part, ...]:
    each = per_word(bits)
    groups = 1 if group_size == WHOLE_ROW else -(-columns // group_size)
    parts = [
        ("weight_packed", "I32", (rows, -(-columns // each)), 4),
        ("weight_scale", dtype, (rows, groups), width),
        ("weight_shape", "I64", (2,), 8),
    ]
    if not symmetric:
        parts.append(("weight_zero_point", "I32", (-(-rows // each), groups), 4))
    return tuple(Part(name, kind, shape, wide, math.prod(shape) * wide) for name, kind, shape, wide in parts)


def checkpoint(model: Model, planned: Iterable[Planned]) -> int:
    """Bytes of the safetensors files that the plan will write, headers included."""
    replaced = {f"{entry.linear.name}.weight": entry for entry in planned if not entry.choice.kept}
    stored: list[tuple[int, str, str, tuple[int, ...], int]] = []
    for tensor in model.tensors:
        if entry := replaced.get(tensor.name):
            module = entry.linear.name
            for part in packed(entry.linear, entry.choice, tensor):
                stored.append((-part.width, f"{module}.{part.name}", part.dtype, part.shape, part.bytes))
        elif not (model.tied and tensor.name == "lm_head.weight"):  # stored once, as the embedding
            width = -tensor.bytes // max(1, tensor.elements)
            stored.append((width, tensor.name, tensor.dtype, tensor.shape, tensor.bytes))
    return _header(stored) + sum(size for *_, size in stored)


def _header(stored: list[tuple[int, str, str, tuple[int, ...], int]]) -> int:
    """Bytes of the length and the JSON before the values, as safetensors writes them: the widest types first."""
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    at = 0
    for _, name, dtype, shape, size in sorted(stored):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (at, at + size)}
        at += size
    length = len(json.dumps(header, separators=(",", ":")))
    return 8 + length + -length % 8
