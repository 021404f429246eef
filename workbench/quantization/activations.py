"""Where the activations between two blocks lie: on the device where they are few, else in the host's memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

RESIDENT_BYTES = 4 << 30  # a bound that does not grow with the card: the need of a job can be told before it runs
COPIES = 3  # they are there once more while a block's parts are gone through, and as they would be unquantized
SHARE_OF_FREE = 0.25


def settled(batches: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The batches where they stay from now on; each block's results go to where its inputs were."""
    if device.type == "cpu":
        return list(batches)
    wanted = COPIES * sum(batch.numel() * batch.element_size() for batch in batches)
    if wanted <= min(RESIDENT_BYTES, SHARE_OF_FREE * torch.cuda.mem_get_info(device)[0]):
        return [batch.to(device) for batch in batches]
    return list(batches)
