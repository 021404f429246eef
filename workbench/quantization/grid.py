"""The grid that a weight is rounded to: one scale, and for asymmetric grids one zero point, per group of a row."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from workbench.recipe import Choice

PIECE = 1 << 24  # weights that a search looks at together
CACHED = 1 << 20  # the same where a processor's cache has to hold them: there a search takes half the time


@dataclass(frozen=True, slots=True)
class Grid:
    """`scale` and `zero` are float32 [out, groups]; integers run from `low` to `high`.

    A weight is (integer - zero) · scale. `scale` already has the values of the dtype it is stored in; it may be
    negative, which turns the grid around.
    """

    scale: Tensor
    zero: Tensor
    bits: int
    group_size: int

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1))

    @property
    def high(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def column(self, index: int) -> "Grid":
        """The grid of one input column, to broadcast over [out]."""
        group = index // self.group_size
        return Grid(self.scale[:, group], self.zero[:, group], self.bits, self.group_size)

    def integers(self, weight: Tensor) -> Tensor:
        """Round to nearest: [out, in] -> int8 of the same shape."""
        groups = weight.unflatten(1, (-1, self.group_size))
        return self.round(groups, self.scale[..., None], self.zero[..., None]).flatten(1).to(torch.int8)

    def nearest(self, weight: Tensor) -> Tensor:
        """The value on the grid next to each weight, float32 [out, in], without an integer in between."""
        groups = weight.unflatten(1, (-1, self.group_size))
        scale, zero = self.scale[..., None], self.zero[..., None]
        return self.round(groups, scale, zero).sub_(zero).mul_(scale).flatten(1)

    def values(self, integers: Tensor) -> Tensor:
        """What the integers stand for, float32 [out, in]."""
        groups = integers.unflatten(1, (-1, self.group_size)).to(torch.float32)
        return (groups - self.zero[..., None]).mul_(self.scale[..., None]).flatten(1)

    def round(self, weight: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return (weight / scale).add_(zero).round_().clamp_(self.low, self.high)

    def with_rows(self, rows: Tensor, other: "Grid") -> "Grid":
        """This grid with these rows (bool [out]) as they are in another."""
        wanted = rows[:, None]
        scale, zero = torch.where(wanted, other.scale, self.scale), torch.where(wanted, other.zero, self.zero)
        return replace(self, scale=scale, zero=zero)

    def clipped(self, weight: Tensor) -> float:
        """The share of weights that lie more than half a step outside their group's range."""
        groups = weight.unflatten(1, (-1, self.group_size)) / self.scale[..., None] + self.zero[..., None]
        return ((groups < self.low - 0.5) | (groups > self.high + 0.5)).float().mean().item()

    def levels(self) -> tuple[float, ...]:
        """The values of a typical group, ascending: the one with the median scale."""
        middle = self.scale.abs().flatten().argsort()[self.scale.numel() // 2]
        steps = torch.arange(self.low, self.high + 1) - self.zero.flatten()[middle].cpu()
        return tuple(sorted((steps * self.scale.flatten()[middle].cpu()).tolist()))


def fit(
    weight: Tensor, choice: Choice, stored: torch.dtype, shrink: Tensor | float = 1.0, turned: bool = False
) -> Grid:
    """The grid over each group's range, shrunk to `shrink` of it (a number or [out, groups]).

    weight: float32 [out, in]. `stored` is the dtype the scales are kept in; a group of zeros gets scale 1. A
    symmetric grid has one level more below zero than above; with `turned` it lies where the group reaches farther.
    """
    size = choice.group_size if choice.group_size > 0 else weight.shape[1]
    assert weight.shape[1] % size == 0, (weight.shape, size)
    groups = weight.unflatten(1, (-1, size))
    steps = (1 << choice.bits) - 1
    lowest = groups.amin(-1).clamp(max=0) * shrink
    highest = groups.amax(-1).clamp(min=0) * shrink
    if choice.symmetric:
        scale = _stored(torch.maximum(-lowest, highest) / (steps / 2), stored)
        if turned:
            scale = torch.where(highest > -lowest, -scale, scale)
        zero = torch.zeros_like(scale)
    else:
        scale = _stored((highest - lowest) / steps, stored)
        low = -(1 << (choice.bits - 1))
        zero = (low - lowest / scale).round().clamp(low, low + steps)
    return Grid(scale, zero, choice.bits, size)


def shrinks(weight: Tensor, moments: Tensor, choice: Choice, stored: torch.dtype, floor: float = 0.0) -> Tensor:
    """The range shrink [out, groups] that makes each group's own output error smallest.

    A group's error is e·H_g·eᵀ with e its row of rounding errors and H_g its block on the diagonal of
    `moments` [in, in] plus `floor` of the mean diagonal; what groups do to each other is left to the rounding.
    13 shrinks from 1.0 to 0.7.
    """
    size = choice.group_size if choice.group_size > 0 else weight.shape[1]
    blocks = torch.stack([moments[at : at + size, at : at + size] for at in range(0, weight.shape[1], size)])
    torch.diagonal(blocks, dim1=1, dim2=2).add_(floor * torch.diagonal(moments).mean())
    rows = max(1, (CACHED if weight.device.type == "cpu" else PIECE) // weight.shape[1])
    return torch.cat([_best_shrink(part, blocks, choice, stored) for part in weight.split(rows)])


def _best_shrink(weight: Tensor, blocks: Tensor, choice: Choice, stored: torch.dtype) -> Tensor:
    """For some rows, [rows, groups]; blocks: [groups, size, size]."""
    best_error = best = torch.empty(0)
    for step in range(13):
        shrink = 1.0 - 0.025 * step
        wrong = fit(weight, choice, stored, shrink, turned=True).nearest(weight).sub_(weight)
        wrong = wrong.unflatten(1, (-1, blocks.shape[1])).transpose(0, 1)
        error = (wrong @ blocks).mul_(wrong).sum(-1).T
        if not step:
            best_error, best = error, torch.ones_like(error)
            continue
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best[better] = shrink
    return best


def _stored(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The scale as it will be read back. Zero would divide, so an all-zero group gets 1."""
    limits = torch.finfo(dtype)
    kept = scale.clamp(max=limits.max).to(dtype).to(torch.float32)
    return torch.where(kept < limits.tiny, torch.where(scale > 0, limits.tiny, 1.0), kept)
