"""What a quantized model is taught: the original's answers to some text, compared by KL divergence."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from workbench.quantization.blocks import Skeleton

ROWS = 256  # positions whose logits are held at once


class Lessons:
    """`batches` int64 [rows, length] and `leaving`, what leaves the original's last block for each. Products with
    the head are taken in `product`."""

    def __init__(self, skeleton: Skeleton, batches: Sequence[Tensor], leaving: Sequence[Tensor], product: torch.dtype):
        self._skeleton, self._batches, self._leaving = skeleton, batches, leaving
        self._norm, head = skeleton.last()
        self._head = head.to(product)

    def __len__(self) -> int:
        return len(self._batches)

    @torch.no_grad()
    def divergence(self, blocks: Sequence[nn.Module], at: int) -> float:
        """KL(original ‖ quantized) over a position of a batch, on average."""
        ours, right = self._normed(self._run(blocks, at)), self._right(at)
        total = 0.0
        for start in range(0, len(ours), ROWS):
            rows = slice(start, start + ROWS)
            total += _divergence(self._answers(right[rows]), self._answers(ours[rows])).item()
        return total / len(ours)

    @torch.enable_grad()
    def learn(self, blocks: Sequence[nn.Module], at: int) -> None:
        """Add the gradient of a batch's mean divergence to what is trainable in the blocks."""
        state = self._run(blocks, at)
        ours, right = self._normed(state), self._right(at)
        # The logits of a few positions at a time: all of them would take more memory than the model.
        inner, gradient = ours.detach(), torch.empty_like(ours)
        for start in range(0, len(ours), ROWS):
            rows = slice(start, start + ROWS)
            some = inner[rows].requires_grad_()
            wrong = _divergence(self._answers(right[rows]), self._answers(some)) / len(ours)
            gradient[rows] = torch.autograd.grad(wrong, some)[0]
        ours.backward(gradient)

    def _run(self, blocks: Sequence[nn.Module], at: int) -> Tensor:
        state = self._skeleton.embed([self._batches[at]])[0].to(self._skeleton.device)
        for block in blocks:
            state = self._skeleton.forward(block, state)
        return state

    def _right(self, at: int) -> Tensor:
        with torch.no_grad():
            return self._normed(self._leaving[at].to(self._skeleton.device))

    def _normed(self, state: Tensor) -> Tensor:
        return self._norm(state).flatten(0, 1)

    def _answers(self, normed: Tensor) -> Tensor:
        """Log probabilities, float32 [rows, vocab]."""
        logits = (normed.to(self._head.dtype) @ self._head.T).to(torch.float32)
        return log_softmax(self._skeleton.logits(logits), -1)


def _divergence(right: Tensor, ours: Tensor) -> Tensor:
    return (right.exp() * (right - ours)).sum()
