"""Second moments of the inputs of linear layers."""

from collections.abc import Iterator

import torch
from torch import Tensor

STRIP = 192  # columns at a time, at least: only strips from the diagonal to the right are computed
STRIPS = 8  # at most


class Moments:
    """H = XᵀX / tokens of one input, gathered batch by batch in float32.

    It serves everything: GPTQ's Hessian, and as the output error tr(ΔW H ΔWᵀ) the search for AWQ scales and ranges.
    """

    def __init__(self, size: int, device: torch.device):
        self._upper = torch.zeros(size, size, device=device)
        self._mirrored = False
        self.tokens = 0

    @property
    def matrix(self) -> Tensor:
        """H, [size, size]; the sums themselves, not a copy."""
        if not self._mirrored:
            for at, end in _strips(len(self._upper)):
                own = self._upper[at:end, at:end].triu_()
                own.add_(torch.triu(own, 1).T)
                self._upper[end:, at:end] = self._upper[at:end, end:].T
            self._mirrored = True
        return self._upper

    def add(self, inputs: Tensor) -> None:
        """inputs: [..., size]; every row is one token."""
        rows = inputs.reshape(-1, inputs.shape[-1]).to(torch.float32)
        total = self.tokens + rows.shape[0]
        for at, end in _strips(rows.shape[1]):
            strip = self._upper[at:end, at:]
            strip.addmm_(rows[:, at:end].T, rows[:, at:], beta=self.tokens / total, alpha=1 / total)
        self.tokens, self._mirrored = total, False

    def scaled(self, scale: Tensor) -> "Moments":
        """The moments of the inputs divided by `scale` [size]."""
        other = Moments(0, self._upper.device)
        other._upper, other.tokens = (self.matrix / scale).div_(scale[:, None]), self.tokens
        return other


def output_error(wrong: Tensor, moments: Tensor) -> float:
    """tr(ΔW H ΔWᵀ): the mean squared error of a linear layer's output, summed over outputs. wrong: [out, in]."""
    return error_sum(wrong, moments).item()


def error_sum(wrong: Tensor, moments: Tensor) -> Tensor:
    """The same, left on the device."""
    return errors(wrong, moments).sum()


def errors(wrong: Tensor, moments: Tensor) -> Tensor:
    """Each output's part of it, [..., out] of [..., out, in]; what two strips do to each other is computed once."""
    found = wrong.new_zeros(wrong.shape[:-1])
    for at, end in _strips(wrong.shape[-1]):
        own, after = wrong[..., at:end], wrong[..., end:]
        met = own @ moments[at:end, at:]
        found += met[..., : end - at].mul_(own).sum(-1)
        found.add_(met[..., end - at :].mul_(after).sum(-1), alpha=2)
    return found


def _strips(size: int) -> Iterator[tuple[int, int]]:
    step = max(STRIP, -(-size // STRIPS))
    for at in range(0, size, step):
        yield at, min(at + step, size)
