"""GPTQ's inner loop, the columns of one block in turn: on an NVIDIA GPU one kernel, elsewhere one column at a time."""

from functools import cache

import torch
from torch import Tensor

from workbench.quantization.grid import Grid


def round_block(W: Tensor, U: Tensor, grid: Grid, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Integers int8 [out, block] and the errors float32 [out, block] that later columns have to make up for.

    W: float32 [out, block]; U: the block on the diagonal of the inverse factor, [block, block]; `groups` [block]
    names each column's group on the grid.
    """
    kernel = _kernel() if W.is_cuda else None
    return kernel(W, U, grid, groups) if kernel else by_columns(W, U, grid, groups)


def by_columns(W: Tensor, U: Tensor, grid: Grid, groups: Tensor) -> tuple[Tensor, Tensor]:
    """The same on any device."""
    # One contiguous row per column: reading a strided column for each step would cost more than the arithmetic.
    W = W.T.contiguous()
    scales, zeros = grid.scale.T[groups].contiguous(), grid.zero.T[groups].contiguous()
    Q, Err = torch.empty_like(W), torch.empty_like(W)
    diagonal = torch.diagonal(U).tolist()
    for i in range(len(W)):
        w, scale, zero = W[i], scales[i], zeros[i]
        q = grid.round(w, scale, zero)
        Q[i] = q
        torch.sub(w, q.sub_(zero).mul_(scale), out=Err[i]).div_(diagonal[i])
        W[i + 1 :].addr_(U[i, i + 1 :], Err[i], alpha=-1)
    return Q.T.to(torch.int8), Err.T


@cache
def _kernel():
    """The fused loop, where Triton is there and can compile; it needs a C compiler."""
    try:
        from workbench.quantization import columns_fused

        columns_fused.prove()
    except Exception:  # whatever is amiss with a compiler, the plain loop does the same
        return None
    return columns_fused.round_block
