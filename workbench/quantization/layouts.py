"""The integers of one linear layer in the layouts of AutoAWQ (GEMM) and of GPTQ, and back again.

Everywhere a weight is (code - zero) · scale with codes and zeros from 0 to 2^bits - 1. compressed-tensors packs
[out, in] along the inputs and leaves out a zero that is the middle. AWQ packs [in, out] along the outputs with the
order of each eight interleaved; GPTQ packs [in, out] along the inputs. Version 1 of GPTQ stores zeros less one, which
has no place for a zero of 0 (https://github.com/ModelCloud/GPTQModel, "gptq_v2").
"""

from dataclasses import dataclass

import torch
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which of eight values lies at each place of a word, lowest bits first
PARTS = ("qweight", "qzeros", "scales", "g_idx")
_WORD = 32


@dataclass(frozen=True, slots=True)
class Integers:
    """int32 codes [out, in], int32 zeros [out, groups] and scales [out, groups] as stored."""

    codes: Tensor
    zeros: Tensor
    scale: Tensor
    bits: int

    def same(self, other: "Integers") -> bool:
        """Whether both stand for exactly the same weights; the scales may have another type of the same values."""
        pairs = ((self.codes, other.codes), (self.zeros, other.zeros), (self.scale.float(), other.scale.float()))
        return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def from_packed(tensors: dict[str, Tensor], bits: int) -> Integers:
    """From the tensors of compressed-tensors, by the last part of their name."""
    rows, columns = (int(length) for length in tensors["weight_shape"])
    scale = tensors["weight_scale"]
    zeros = torch.full(scale.shape, 1 << (bits - 1), dtype=torch.int32)
    if "weight_zero_point" in tensors:
        zeros = _unpack(tensors["weight_zero_point"].t(), bits).t()[:rows].contiguous()
    return Integers(_unpack(tensors["weight_packed"], bits)[:, :columns].contiguous(), zeros, scale, bits)


def to_awq(weight: Integers) -> dict[str, Tensor]:
    """qweight [in, out/8], qzeros [groups, out/8], scales [groups, out]."""
    return {
        "qweight": _pack(_interleaved(weight.codes.t()), weight.bits),
        "qzeros": _pack(_interleaved(weight.zeros.t()), weight.bits),
        "scales": _half(weight.scale.t()),
    }


def from_awq(tensors: dict[str, Tensor], bits: int) -> Integers:
    codes, zeros = (_straight(_unpack(tensors[name], bits)) for name in ("qweight", "qzeros"))
    return Integers(codes.t(), zeros.t(), tensors["scales"].t(), bits)


def to_gptq(weight: Integers, less_one: bool) -> dict[str, Tensor]:
    """qweight [in·bits/32, out], qzeros [groups, out·bits/32], scales [groups, out], g_idx [in] in plain order."""
    columns, groups = weight.codes.shape[1], weight.scale.shape[1]
    return {
        "qweight": _pack(weight.codes, weight.bits).t().contiguous(),
        "qzeros": _pack(weight.zeros.t() - int(less_one), weight.bits),
        "scales": _half(weight.scale.t()),
        "g_idx": torch.arange(columns, dtype=torch.int32) // (columns // groups),
    }


def from_gptq(tensors: dict[str, Tensor], bits: int, less_one: bool) -> Integers:
    zeros = _unpack(tensors["qzeros"], bits) + int(less_one)
    return Integers(_unpack(tensors["qweight"].t(), bits), zeros.t(), tensors["scales"].t(), bits)


def _pack(values: Tensor, bits: int) -> Tensor:
    """[rows, n] of small integers -> int32 [rows, n·bits/32], the first value in the lowest bits."""
    each = values.unflatten(1, (-1, _WORD // bits))
    packed = torch.zeros(each.shape[:2], dtype=torch.int32)
    for place in range(each.shape[2]):
        packed |= each[:, :, place] << (place * bits)
    return packed


def _unpack(words: Tensor, bits: int) -> Tensor:
    shifts = torch.arange(0, _WORD, bits, dtype=torch.int32)
    return ((words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)).flatten(1)


def _interleaved(values: Tensor) -> Tensor:
    return values.unflatten(1, (-1, 8))[:, :, list(AWQ_ORDER)].flatten(1)


def _straight(values: Tensor) -> Tensor:
    places = [AWQ_ORDER.index(number) for number in range(8)]
    return values.unflatten(1, (-1, 8))[:, :, places].flatten(1)


def _half(scale: Tensor) -> Tensor:
    """float16, which the formats' own tools insist on, wherever no scale changes by it."""
    half = scale.to(torch.float16)
    exact = torch.equal(half.to(torch.float32), scale.to(torch.float32))
    return (half if exact else scale).contiguous()
