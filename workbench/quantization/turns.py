"""Which way a block is quantized."""

from collections.abc import Mapping

import torch
from torch import Tensor

from workbench.plan import Planned
from workbench.quantization.blocks import Skeleton
from workbench.quantization.layered import LayeredTurn
from workbench.quantization.turn import Turn
from workbench.quantization.walked import WalkedTurn


def turn_of(
    skeleton: Skeleton,
    index: int,
    planned: Mapping[str, Planned],
    hidden: list[Tensor],
    stored: torch.dtype,
    originals: list[Tensor],
) -> Turn:
    """The turn of block `index`: by its parts where it is built like Llama's, else by what its structure shows."""
    return (LayeredTurn if skeleton.usual else WalkedTurn)(skeleton, index, planned, hidden, stored, originals)
