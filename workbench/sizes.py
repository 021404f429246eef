"""How many bytes a quantized checkpoint will take, from shapes alone.

The layout is compressed-tensors' `pack-quantized`: weights packed along the inputs into 32-bit words, scales in the
weights' own type, zero points of asymmetric layers packed along the outputs, and the shape as two 64-bit numbers.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.recipe import WHOLE_ROW, Choice

WORD = 32  # bits
_PLAIN = re.compile(r"[\w.-]*\Z", re.ASCII).match  # names that JSON writes as they are


@dataclass(frozen=True, slots=True)
class Planned:
    """One linear with its choice, the group size a number or -1, and its stored size in bytes without a bias."""

    linear: Linear
    choice: Choice
    bytes: int


def words(count: int, bits: int) -> int:
    """How many words of 32 bits so many values take; at 3 bits values run on from word to word."""
    return -(-count * bits // WORD)


def planned(model: Model, choices: Iterable[tuple[Linear, Choice]]) -> tuple[Planned, ...]:
    """Each linear with its choice and size."""
    weights = {tensor.name: tensor for tensor in model.tensors}
    return tuple(
        Planned(linear, choice, stored_bytes(linear, choice, weights.get(f"{linear.name}.weight")))
        for linear, choice in choices
    )


def stored_bytes(linear: Linear, choice: Choice, weight: Tensor | None) -> int:
    """What takes the place of `weight` under a choice, in bytes."""
    if choice.kept or weight is None:
        return weight.bytes if weight else 0
    return _packed(linear, choice, weight).bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One stored tensor in the place of a weight; `name` is the last part of its name, `width` a value's bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Packed:
    parts: tuple[Part, ...]
    bytes: int


def packed(linear: Linear, choice: Choice, weight: Tensor) -> tuple[Part, ...]:
    """What takes the place of `weight`."""
    return _packed(linear, choice, weight).parts


def _packed(linear: Linear, choice: Choice, weight: Tensor) -> _Packed:
    rows, columns = linear.out_features, linear.in_features
    width = weight.bytes // max(1, rows * columns)
    return _of_shape(rows, columns, choice.bits, choice.group_size, choice.symmetric, weight.dtype, width)


@cache  # a model has few shapes and tens of thousands of layers
def _of_shape(rows: int, columns: int, bits: int, group_size: int, symmetric: bool, dtype: str, width: int) -> _Packed:
    groups = 1 if group_size == WHOLE_ROW else -(-columns // group_size)
    parts = [
        ("weight_packed", "I32", (rows, words(columns, bits)), 4),
        ("weight_scale", dtype, (rows, groups), width),
        ("weight_shape", "I64", (2,), 8),
    ]
    if not symmetric:
        parts.append(("weight_zero_point", "I32", (words(rows, bits), groups), 4))
    made = tuple(Part(name, kind, shape, wide, math.prod(shape) * wide) for name, kind, shape, wide in parts)
    return _Packed(made, sum(part.bytes for part in made))


def checkpoint(model: Model, planned: Iterable[Planned]) -> int:
    """Bytes of the safetensors files that the plan will write, headers included."""
    replaced = {f"{entry.linear.name}.weight": entry for entry in planned if not entry.choice.kept}
    stored: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for tensor in model.tensors:
        if entry := replaced.get(tensor.name):
            module = entry.linear.name
            for part in packed(entry.linear, entry.choice, tensor):
                stored[part.width].append((f"{module}.{part.name}", _described(part.dtype, part.shape), part.bytes))
        elif not (model.tied and tensor.name == "lm_head.weight"):  # stored once, as the embedding
            width = tensor.bytes // max(1, tensor.elements)
            stored[width].append((tensor.name, _described(tensor.dtype, tensor.shape), tensor.bytes))
    return _header(stored) + sum(size for same in stored.values() for *_, size in same)


def _header(stored: dict[int, list[tuple[str, int, int]]]) -> int:
    """Bytes of the length and the JSON before the values, as safetensors writes them: the widest types first.

    `stored` has by a value's width the tensors' names, the lengths of what describes them, and their bytes. The
    JSON of tens of thousands of tensors is megabytes, so it is counted and not written.
    """
    length, at, digits = len('{"__metadata__":{"format":"pt"}}'), 0, 1
    for width in sorted(stored, reverse=True):
        same = sorted(stored[width])
        names = "".join(name for name, *_ in same)
        length += len(names) if _PLAIN(names) else len(json.dumps(names)) - 2
        for _, described, size in same:
            at += size
            length += described + digits
            digits = len(str(at))
            length += digits
    return 8 + length + -length % 8


@cache
def _described(dtype: str, shape: tuple[int, ...]) -> int:
    """The length of one tensor's entry in the header without its name and the digits of its offsets."""
    entry = {"": {"dtype": dtype, "shape": shape, "data_offsets": ("", "")}}
    # One comma joins the entry to the one before, in the place of the braces; the offsets are no strings.
    return len(json.dumps(entry, separators=(",", ":"))) - 2 + 1 - 4
