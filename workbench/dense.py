"""Values of any width in words of 32 bits without gaps between them, the lowest bits first: what vLLM reads.

compressed-tensors packs so from 0.19 on. Up to 0.17, which vLLM 0.32 is built with, it leaves two bits of each word
unused at 3 bits, and vLLM, which counts ⌈columns · bits / 32⌉ words, refuses that.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad as padded

WORD = 32  # bits


def pack(values: Tensor, bits: int) -> Tensor:
    """Values from 0 to 2^bits - 1, [rows, columns] -> int32 [rows, ⌈columns · bits / 32⌉]."""
    places = torch.arange(bits, device=values.device, dtype=torch.uint8)
    spread = ((values.to(torch.uint8)[..., None] >> places) & 1).flatten(1)
    spread = padded(spread, (0, -spread.shape[1] % WORD)).unflatten(1, (-1, WORD))
    words = (spread.to(torch.int64) << torch.arange(WORD, device=values.device)).sum(-1)
    return torch.where(words >> (WORD - 1) > 0, words - (1 << WORD), words).to(torch.int32)


def unpack(words: Tensor, bits: int, columns: int) -> Tensor:
    """int32 [rows, words] -> the values, int32 [rows, columns]."""
    spread = (words[..., None] >> torch.arange(WORD, device=words.device, dtype=torch.int32)) & 1
    values = spread.flatten(1)[:, : columns * bits].unflatten(1, (columns, bits))
    return (values << torch.arange(bits, device=words.device, dtype=torch.int32)).sum(-1, dtype=torch.int32)
