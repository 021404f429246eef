"""One packed linear layer in the layout `pack-quantized` of compressed-tensors."""

import torch
from compressed_tensors.compressors import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from torch import Tensor

from workbench import dense
from workbench.dense import WORD
from workbench.quantization.grid import Grid
from workbench.recipe import BITS, WHOLE_ROW, Choice

PIECE = 1 << 24  # integers packed together: there are copies four times as wide, and wider ones at 3 bits
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
    rows = max(1, PIECE // integers.shape[1] // (8 if WORD % choice.bits else 1))
    packed = {
        "weight_packed": torch.cat([_words(part, choice.bits) for part in integers.split(rows)]),
        "weight_scale": grid.scale.to(stored).contiguous(),
        "weight_shape": torch.tensor(integers.shape),
    }
    if not choice.symmetric:
        packed["weight_zero_point"] = _words(grid.zero.to(torch.int8).T, choice.bits).T.contiguous()
    return packed


def _words(integers: Tensor, bits: int) -> Tensor:
    """int8 [rows, columns] from -2^(bits - 1) on -> int32 [rows, words], packed along the columns."""
    if WORD % bits:
        return dense.pack(integers + (1 << (bits - 1)), bits)
    return pack_to_int32(integers.contiguous(), bits)


def unpack(packed: dict[str, Tensor], scheme: QuantizationScheme) -> Tensor:
    """The weight that a reader gets, float32 [out, in]; scales are widened first so that nothing is rounded twice."""
    bits, (rows, columns) = scheme.weights.num_bits, packed["weight_shape"].tolist()
    scale = packed["weight_scale"].to(torch.float32)
    if not WORD % bits or packed["weight_packed"].shape[1] != -(-columns * bits // WORD):
        return PackedQuantizationCompressor.decompress(packed | {"weight_scale": scale}, scheme)["weight"]
    half, zero = 1 << (bits - 1), torch.zeros_like(scale)
    if (stored := packed.get("weight_zero_point")) is not None:
        zero = dense.unpack(stored.T, bits, rows).T.to(torch.float32) - half
    integers = dense.unpack(packed["weight_packed"], bits, columns) - half
    return Grid(scale, zero, bits, columns // scale.shape[1]).values(integers)


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

    A few columns take as many words at two widths (24 at 3 and 4 bits): then it is the narrower one where nothing
    lies beyond its values.
    """
    words = packed.shape[1]
    fitting = [bits for bits in BITS if -(-columns * bits // WORD) == words]
    if not fitting:
        return 3  # with gaps: made by compressed-tensors 0.17
    last = packed[:, -1].to(torch.int64) & 0xFFFFFFFF
    beyond = {bits: last >> (columns * bits - WORD * (words - 1)) for bits in fitting[:-1]}
    return next((bits for bits, rest in beyond.items() if not rest.any()), fitting[-1])
