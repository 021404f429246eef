"""A quantized linear layer whose scales can be trained, and which keeps its weight as integers meanwhile."""

import torch
from torch import Tensor, nn


class Tuned(nn.Module):
    """Computes what the packed layer computes, its scales times 1 + `change`, which is float32 [out, groups].

    weight: float32 [out, in], whole multiples of `scale` [out, groups] by group. Products are taken in `product`, a
    faster dtype than float32 perhaps.
    """

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None, product: torch.dtype):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.change = nn.Parameter(torch.zeros_like(scale))
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        steps = (weight.unflatten(1, (scale.shape[1], -1)) / scale[..., None]).round()
        self.register_buffer("base", scale)
        self.register_buffer("steps", steps.to(torch.int16 if steps.abs().max() > 127 else torch.int8))
        self._product = product

    @property
    def scale(self) -> Tensor:
        """float32 [out, groups]."""
        return self.base * (1 + self.change)

    @property
    def weight(self) -> Tensor:
        """float32 [out, in]."""
        return _weight(self.scale, self.steps, torch.float32)

    @torch.no_grad()
    def settle(self, scale: Tensor) -> None:
        """Compute with just this scale from now on."""
        self.base.copy_(scale)
        self.change.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        output = _Linear.apply(inputs, self.scale, self.steps, self._product)
        return output if self.bias is None else output + self.bias


class _Linear(torch.autograd.Function):
    """inputs @ weightᵀ; the weight is made anew for the way back instead of being held for it."""

    @staticmethod
    def forward(ctx, inputs: Tensor, scale: Tensor, steps: Tensor, product: torch.dtype) -> Tensor:
        lean = inputs.to(product)
        ctx.save_for_backward(lean, scale, steps)
        return (lean @ _weight(scale, steps, product).T).to(inputs.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        lean, scale, steps = ctx.saved_tensors
        back = gradient.to(lean.dtype)
        entering = (back @ _weight(scale, steps, lean.dtype)).to(gradient.dtype)
        by_weight = back.flatten(0, -2).T @ lean.flatten(0, -2)
        by_scale = (by_weight.view(steps.shape) * steps).sum(-1, dtype=torch.float32)
        return entering, by_scale, None, None


def _weight(scale: Tensor, steps: Tensor, product: torch.dtype) -> Tensor:
    """[out, in]."""
    return (steps * scale[..., None]).flatten(1).to(product)
