"""GPTQ (Frantar et al., 2022, arXiv 2210.17323): round column by column, the rest makes up for the error."""

import torch
from torch import Tensor

from workbench.quantization.grid import Grid

BLOCK = 128
DAMPING_STEPS = 4  # each ten times the one before


def round_columns(W: Tensor, H: Tensor, grid: Grid, damping: float, static_order: bool) -> tuple[Tensor, float] | None:
    """Integers int8 [out, in] and the damping that was needed; None when no damping makes H invertible.

    W: float32 [out, in]; H: float32 [in, in]; `damping` is a share of H's mean diagonal. With `static_order` the
    columns are taken by falling diag(H), each on its own group's grid, and stored where they were.
    """
    W = W.clone()
    order = (
        torch.argsort(torch.diagonal(H), descending=True) if static_order else torch.arange(W.shape[1], device=W.device)
    )
    found = _inverse_factor(H[order][:, order], damping)
    if found is None:
        return None
    U, damping = found
    W = W[:, order].contiguous()
    Q = torch.empty_like(W)
    groups = torch.div(order, grid.group_size, rounding_mode="floor")
    # One contiguous row per column: reading a strided column for each step would cost more than the arithmetic.
    scales, zeros = grid.scale.T[groups].contiguous(), grid.zero.T[groups].contiguous()
    for start in range(0, W.shape[1], BLOCK):
        end = min(start + BLOCK, W.shape[1])
        W1 = W[:, start:end].T.contiguous()
        Q1, Err1 = torch.empty_like(W1), torch.empty_like(W1)
        U1 = U[start:end, start:end]
        diagonal = torch.diagonal(U1).tolist()
        for i in range(end - start):
            w, scale, zero = W1[i], scales[start + i], zeros[start + i]
            Q1[i] = grid.round(w, scale, zero)
            Err1[i] = (w - (Q1[i] - zero) * scale) / diagonal[i]
            W1[i + 1 :].addr_(U1[i, i + 1 :], Err1[i], alpha=-1)
        Q[:, start:end] = Q1.T
        W[:, end:].addmm_(Err1.T, U[start:end, end:], alpha=-1)
    integers = torch.empty_like(Q, dtype=torch.int8)
    integers[:, order] = Q.to(torch.int8)
    return integers, damping


def _inverse_factor(H: Tensor, damping: float) -> tuple[Tensor, float] | None:
    """The upper Cholesky factor of (H + damping)⁻¹ and the damping used. A dead input only rounds for itself."""
    mean = torch.diagonal(H).mean()
    if not torch.isfinite(mean) or mean <= 0:
        return None
    dead = torch.diagonal(H) == 0
    for step in range(DAMPING_STEPS):
        used = max(damping, 1e-6) * 10**step
        damped = H + torch.diag(torch.where(dead, mean, used * mean))
        lower, failed = torch.linalg.cholesky_ex(damped)
        if failed:
            continue
        upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
        if not failed and torch.isfinite(upper).all():
            return upper, used
    return None
