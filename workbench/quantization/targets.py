"""What a layer is fitted to: the outputs of the original model on its own way through the text.

Fitted to what its own weight makes of quantized inputs, a layer keeps every error made before it. Fitted to the
original's outputs it takes back what it can, as in GPTAQ (Li et al., 2025, arXiv 2504.02692) and Qronos (Zhang et
al., 2025, arXiv 2505.11695). Here the weight is moved first, in closed form, and rounded afterwards as any other.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from workbench.quantization import precision
from workbench.quantization.blocks import Skeleton

DAMPING = 1.0  # of H's mean diagonal, towards the weight as it is, were there one token for an input


class Lack:
    """Σ missing · inputᵀ / tokens, gathered batch by batch: what a layer's inputs could add to make up for it."""

    def __init__(self, missing: int, inputs: int, device: torch.device):
        self.matrix = torch.zeros(missing, inputs, device=device)
        self._tokens = 0

    def add(self, missing: Tensor, inputs: Tensor) -> None:
        """missing: [..., missing], inputs: [..., inputs]; every row is one token."""
        lacking, rows = missing.flatten(0, -2), inputs.flatten(0, -2)
        total = self._tokens + len(rows)
        self.matrix.addmm_(lacking.T, rows, beta=self._tokens / total, alpha=1 / total)
        self._tokens = total


def moved(weight: Tensor, lack: Tensor, H: Tensor, tokens: int) -> Tensor:
    """The weight [out, in] whose outputs come nearest to the wanted ones: least squares under H [in, in].

    lack: [out, in], what the outputs lack times the inputs. With few tokens part of the fit is chance, the share of
    inputs to tokens, and so much less is taken of it. A weight that cannot be fitted stays.
    """
    share = 1 - H.shape[0] / tokens if tokens else 0.0
    if share <= 0:
        return weight
    with precision.exact():
        damping = DAMPING * H.shape[0] / tokens * torch.diagonal(H).mean()
        damped = H + torch.diag(damping.expand(len(H)))
        lower, failed = torch.linalg.cholesky_ex(damped)
        found = weight + share * torch.cholesky_solve(lack.T, lower).T
    return weight if failed or not torch.isfinite(found).all() else found


@torch.no_grad()
def through(skeleton: Skeleton, count: int, states: list[Tensor]) -> Iterator[int]:
    """Take batches that enter the original's first block, in place, to behind its first `count`; yields how far."""
    for index in range(count):
        block = skeleton.load(index)
        for at, state in enumerate(states):
            states[at] = skeleton.forward(block, state.to(skeleton.device)).to(state.device)
        yield index + 1
