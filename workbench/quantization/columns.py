"""GPTQ's inner loop, the columns of one block in turn: on an NVIDIA GPU one kernel, elsewhere one column at a time."""

from functools import cache

import torch
from torch import Tensor

from workbench.quantization.grid import Grid

NEAR = 16  # columns that follow each error at once; the others of a block follow all of these together


def round_block(W: Tensor, U: Tensor, grid: Grid, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Integers int8 [out, block] and the errors float32 [out, block] that later columns have to make up for.

    W: float32 [out, block]; U: the block on the diagonal of the inverse factor, [block, block]; `groups` [block]
    names each column's group on the grid.
    """
    kernel = _kernel() if W.is_cuda else None
    return kernel(W, U, grid, groups) if kernel else by_columns(W, U, grid, groups)


def by_columns(W: Tensor, U: Tensor, grid: Grid, groups: Tensor) -> tuple[Tensor, Tensor]:
    """The same on any device."""
    # Each column is divided by its place on the diagonal at once, so that what a column leaves is its error itself;
    # and in inference mode torch takes a third less time for each of these small steps.
    with torch.inference_mode():
        diagonal = torch.diagonal(U)
        # One contiguous row per column: reading a strided column for each step would cost more than the arithmetic.
        W, U = W.T.contiguous().div_(diagonal[:, None]), U / diagonal
        zeros = grid.zero.T[groups].contiguous()
        steps = grid.scale.T[groups].div_(diagonal[:, None]).contiguous()
        Q, Err = torch.empty_like(W), torch.empty_like(W)
        rows = list(zip(W, steps, grid.low - zeros, grid.high - zeros, Q, Err, strict=True))
        for start in range(0, len(W), NEAR):
            end = min(start + NEAR, len(W))
            for i in range(start, end):
                w, step, low, high, q, error = rows[i]
                torch.div(w, step, out=q).round_().clamp_(low, high)
                torch.addcmul(w, q, step, value=-1, out=error)
                W[i + 1 : end].addr_(U[i, i + 1 : end], error, alpha=-1)
            W[end:].addmm_(U[start:end, end:].T, Err[start:end], alpha=-1)
        Q.add_(zeros)
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
