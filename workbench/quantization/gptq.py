"""GPTQ (Frantar et al., 2022, arXiv 2210.17323): round column by column, the rest makes up for the error."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.quantization import columns, precision
from workbench.quantization.grid import Grid

BLOCK = 128
DAMPING_STEPS = 4  # each ten times the one before
LEAF = 256  # a triangle of this size is inverted in one piece


@dataclass(frozen=True, slots=True)
class Factor:
    """The upper Cholesky factor U of (H + damping)⁻¹ = UᵀU with the columns in `order`, and the damping it took, a
    share of H's mean diagonal."""

    U: Tensor
    order: Tensor
    damping: float


def round_columns(W: Tensor, H: Tensor, grid: Grid, damping: float, static_order: bool) -> tuple[Tensor, float] | None:
    """Integers int8 [out, in] and the damping that was needed; None when no damping makes H invertible.

    W: float32 [out, in]; H: float32 [in, in]; `damping` is a share of H's mean diagonal. With `static_order` the
    columns are taken by falling diag(H), each on its own group's grid, and stored where they were.
    """
    found = factor(H, damping, static_order)
    return (round_with(W, found, grid)[0], found.damping) if found else None


def round_with(W: Tensor, factor: Factor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Integers int8 [out, in] and each row's error e(H + damping)eᵀ, [out]."""
    U, order = factor.U, factor.order
    with precision.exact():
        W = W.index_select(1, order)
        Q, errors = torch.empty_like(W, dtype=torch.int8), W.new_zeros(len(W))
        groups = torch.div(order, grid.group_size, rounding_mode="floor")
        for start in range(0, W.shape[1], BLOCK):
            end = min(start + BLOCK, W.shape[1])
            Q[:, start:end], Err1 = columns.round_block(
                W[:, start:end], U[start:end, start:end], grid, groups[start:end]
            )
            errors += Err1.square().sum(1)
            W[:, end:].addmm_(Err1, U[start:end, end:], alpha=-1)
    integers = torch.empty_like(Q)
    integers[:, order] = Q
    return integers, errors


def factor(H: Tensor, damping: float, static_order: bool) -> Factor | None:
    """Raises the damping where H + damping cannot be inverted; None when no damping helps.

    With rows and columns reversed H + damping = LLᵀ, and then U is L⁻¹ reversed: half the work of inverting first,
    and one matrix of this size less. A dead input only rounds for itself.
    """
    mean = torch.diagonal(H).mean()
    if not torch.isfinite(mean) or mean <= 0:
        return None
    order = torch.argsort(torch.diagonal(H), descending=True) if static_order else torch.arange(len(H), device=H.device)
    reverse = order.flip(0)
    loud = torch.diagonal(H)[reverse]
    with precision.exact():
        for step in range(DAMPING_STEPS):
            used = max(damping, 1e-6) * 10**step
            damped = H.index_select(0, reverse).index_select(1, reverse)
            torch.diagonal(damped).add_(torch.where(loud == 0, mean, used * mean))
            lower, failed = torch.linalg.cholesky_ex(damped)
            del damped
            if failed:
                continue
            _invert(lower)
            if torch.isfinite(lower.sum()):
                return Factor(lower.flip(0, 1), order, used)
    return None


def _invert(L: Tensor) -> None:
    """Put a lower triangle's inverse in its place, by halves: nearly all of the work is products of matrices."""
    if len(L) <= LEAF:
        L.copy_(torch.linalg.solve_triangular(L, torch.eye(len(L), device=L.device), upper=False))
        return
    half = len(L) // 2
    first, last, below = L[:half, :half], L[half:, half:], L[half:, :half]
    _invert(first)
    _invert(last)
    below.copy_((last @ below @ first).neg_())
