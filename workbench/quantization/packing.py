"""One packed linear layer in the layout `pack-quantized` of compressed-tensors."""

import torch
from compressed_tensors.compressors import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from torch import Tensor

from workbench.quantization.grid import Grid
from workbench.recipe import BITS, WHOLE_ROW, Choice

WORD = 32  # bits
PIECE = 1 << 24  # integers packed together: there are copies four times as wide
PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape")
ORDER = "weight_g_idx"  # the group of each column, where columns were grouped in another order than they lie in


def scheme_of(choice: Choice, targets: list[str]) -> QuantizationScheme:
    """How compressed-tensors and vLLM call this choice. Columns lie in their own order, so no order is named."""
    grouped = choice.group_size > 0
    return QuantizationScheme(
        targets=targets,
        weights=QuantizationArgs(
            num_bits=choice.bits,
            type="int",
            symmetric=choice.symmetric,
            strategy="group" if grouped else "channel",
            group_size=choice.group_size if grouped else None,
        ),
    )


def pack(integers: Tensor, grid: Grid, choice: Choice, stored: torch.dtype) -> dict[str, Tensor]:
    """The tensors on disk of int8 [out, in] on `grid`, by the last part of their name; where the integers are."""
    rows = max(1, PIECE // integers.shape[1])
    packed = {
        "weight_packed": torch.cat([pack_to_int32(part, choice.bits) for part in integers.split(rows)]),
        "weight_scale": grid.scale.to(stored).contiguous(),
        "weight_shape": torch.tensor(integers.shape),
    }
    if not choice.symmetric:
        zero = pack_to_int32(grid.zero.to(torch.int8), choice.bits, packed_dim=0)
        packed["weight_zero_point"] = zero.contiguous()
    return packed


def unpack(packed: dict[str, Tensor], scheme: QuantizationScheme) -> Tensor:
    """The weight that a reader gets, float32 [out, in]; scales are widened first so that nothing is rounded twice."""
    widened = packed | {"weight_scale": packed["weight_scale"].to(torch.float32)}
    return PackedQuantizationCompressor.decompress(widened, scheme)["weight"]


def unpack_block(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A block's stored tensors with every packed weight as a plain one; names are relative to the block.

    Bits, group and symmetry follow from the shapes, so that no target pattern has to be interpreted. Checkpoints made
    elsewhere may say column by column which group it is of.
    """
    plain = {name: tensor for name, tensor in tensors.items() if ".weight_" not in name}
    for name, packed in tensors.items():
        module, _, part = name.rpartition(".")
        if part != "weight_packed":
            continue
        own = {leaf: tensors[f"{module}.{leaf}"] for leaf in (*PARTS, ORDER) if f"{module}.{leaf}" in tensors}
        columns = int(own["weight_shape"][1])
        groups = own["weight_scale"].shape[1]
        choice = Choice(
            bits=_bits(packed, columns),
            group_size=columns // groups if groups > 1 else WHOLE_ROW,
            symmetric="weight_zero_point" not in own,
        )
        plain[f"{module}.weight"] = unpack(own, scheme_of(choice, []))
    return plain


def _bits(packed: Tensor, columns: int) -> int:
    """The width of the values in `packed` [out, words], `columns` of them in a row.

    As many whole values lie in a word as fit, which for few columns is as many words at two widths (32 columns at 3
    and 4 bits): then at the narrower one whose bits beyond its values are all zero.
    """
    fitting = [bits for bits in BITS if -(-columns // (WORD // bits)) == packed.shape[1]]
    assert fitting, (tuple(packed.shape), columns)
    return next((bits for bits in fitting[:-1] if not _left_over(packed, columns, bits).any()), fitting[-1])


def _left_over(packed: Tensor, columns: int, bits: int) -> Tensor:
    """What a row's words hold beyond its values of so many bits; zero where they were packed at that width."""
    each = WORD // bits
    used = torch.full((packed.shape[1],), each, device=packed.device)
    used[-1] = columns - each * (packed.shape[1] - 1)
    return (packed.to(torch.int64) & 0xFFFFFFFF) >> (used * bits)
