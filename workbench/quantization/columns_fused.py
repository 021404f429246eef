"""The loop of `columns.by_columns` as one Triton kernel: a few rows to a program, their columns held in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from workbench.quantization.grid import Grid

ROWS = 16
WIDTH = 128  # columns at most
_MAGIC = tl.constexpr(12582912.0)  # 1.5 · 2²³: adding and taking it away rounds half to even


@triton.jit
def _loop(
    W, U, scales, zeros, groups, Q, Err,
    rows, count, low, high, w_stride, u_down, u_right, scale_down, scale_right, zero_down, zero_right,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = row < rows
    whole = inside[:, None] & (column < count)[None, :]
    w = tl.load(W + row.to(tl.int64)[:, None] * w_stride + column[None, :], mask=whole, other=0.0)
    out = row.to(tl.int64) * count
    for i in range(count):
        group = tl.load(groups + i)
        scale = tl.load(scales + row * scale_down + group * scale_right, mask=inside, other=1.0)
        zero = tl.load(zeros + row * zero_down + group * zero_right, mask=inside, other=0.0)
        own = tl.sum(tl.where((column == i)[None, :], w, 0.0), 1)
        q = tl.minimum(tl.maximum(tl.div_rn(own, scale) + zero, low), high)
        q = (q + _MAGIC) - _MAGIC
        error = tl.div_rn(own - (q - zero) * scale, tl.load(U + i * (u_down + u_right)))
        tl.store(Q + out + i, q.to(tl.int8), mask=inside)
        tl.store(Err + out + i, error, mask=inside)
        u = tl.load(U + i * u_down + column * u_right, mask=(column > i) & (column < count), other=0.0)
        w -= error[:, None] * u[None, :]


def round_block(W: Tensor, U: Tensor, grid: Grid, groups: Tensor) -> tuple[Tensor, Tensor]:
    """As `columns.round_block`."""
    rows, count = W.shape
    assert count <= WIDTH and W.stride(1) == 1, (W.shape, W.stride())
    Q = torch.empty(rows, count, dtype=torch.int8, device=W.device)
    Err = torch.empty(rows, count, device=W.device)
    _loop[(triton.cdiv(rows, ROWS),)](
        W, U, grid.scale, grid.zero, groups, Q, Err,
        rows, count, float(grid.low), float(grid.high),
        W.stride(0), *U.stride(), *grid.scale.stride(), *grid.zero.stride(),
        ROWS=ROWS, WIDTH=WIDTH,
    )  # fmt: skip
    return Q, Err


def prove() -> None:
    """Run it once, so that a machine where it cannot be compiled is known before it is needed."""
    device = torch.device("cuda")
    grid = Grid(torch.ones(2, 1, device=device), torch.zeros(2, 1, device=device), 4, 4)
    weights = torch.tensor([[0.4, 0.4, 0.4, 0.4], [2.0, -9.0, 9.0, 1.5]], device=device)
    found, _ = round_block(weights, torch.eye(4, device=device), grid, torch.zeros(4, dtype=torch.long, device=device))
    assert found.tolist() == [[0, 0, 0, 0], [2, -8, 7, 2]], found
