"""Refinement of a rounded weight: its scales are fitted to the integers, then the integers to the scales, in turn.

Both steps lower tr(ΔW H ΔWᵀ). The scales of a row are one small least-squares problem; the integers go by cyclic
coordinate descent, column by column, as in QuantEase (Behdin et al., 2023, arXiv 2309.01885).
"""

from dataclasses import replace

import torch
from torch import Tensor

from workbench.quantization import precision
from workbench.quantization.grid import Grid
from workbench.quantization.moments import output_error

PASSES = 3
FLOOR = 1e-4  # of H's mean diagonal, so that inputs which never vary decide nothing
TRUST = 1e-3  # how far a refitted scale is held back by the one before, as a share of what its group weighs
BLOCK = 128
BYTES = 1 << 28  # for what some rows make of H


def refined(
    weight: Tensor, H: Tensor, integers: Tensor, grid: Grid, stored: torch.dtype, passes: int = PASSES
) -> tuple[Tensor, Grid]:
    """The best integers and grid found from these on, by the output error under H; these where nothing is better.

    weight: float32 [out, in], what was rounded; integers: int8 [out, in]; H: float32 [in, in]; `stored` is the dtype
    that scales are kept in.
    """
    with precision.exact():
        return _refined(weight, H, integers, grid, stored, passes)


def _refined(
    weight: Tensor, H: Tensor, integers: Tensor, grid: Grid, stored: torch.dtype, passes: int
) -> tuple[Tensor, Grid]:
    lifted = H + torch.diag((FLOOR * torch.diagonal(H).mean()).expand(len(H)))
    order = torch.argsort(torch.diagonal(H), descending=True)
    best, least = (integers, grid), output_error(weight - grid.values(integers), H)
    for _ in range(passes):
        grid = fitted(weight, lifted, integers, grid, stored)
        integers = descended(weight, lifted, integers, grid, order)
        error = output_error(weight - grid.values(integers), H)
        if not error < least:
            break
        best, least = (integers, grid), error
    return best


def fitted(weight: Tensor, H: Tensor, integers: Tensor, grid: Grid, stored: torch.dtype) -> Grid:
    """The grid with the scales that suit these integers [out, in] best; a scale that would more than double, or
    less than halve, stays."""
    size = grid.group_size
    groups = weight.shape[1] // size
    steps = integers.to(torch.float32).unflatten(1, (groups, size)) - grid.zero[..., None]
    strips = H.view(groups, size, -1)
    scale = grid.scale.clone()
    rows = max(1, BYTES // (4 * (groups * groups + weight.shape[1])))
    for start in range(0, len(weight), rows):
        some, before = steps[start : start + rows], grid.scale[start : start + rows]
        A = weight.new_empty(len(some), groups, groups)
        for at in range(groups):
            # What this group of a row makes of its inputs, met by itself and by the groups after it.
            met = (some[:, at] @ strips[at][:, at * size :]).unflatten(1, (-1, size))
            A[:, at, at:] = A[:, at:, at] = met.mul_(some[:, at:]).sum(-1)
        b = ((weight[start : start + rows] @ H).unflatten(1, (groups, size)) * some).sum(-1)
        weighs = torch.diagonal(A, dim1=1, dim2=2)
        held = TRUST * weighs + 1e-6 * weighs.mean(1, keepdim=True) + torch.finfo(A.dtype).tiny
        found, failed = torch.linalg.solve_ex(A + torch.diag_embed(held), b + held * before)
        found = found.to(stored).to(torch.float32)
        grown = found / before
        sound = (grown > 0.5) & (grown < 2) & torch.isfinite(found) & (failed == 0)[:, None]
        scale[start : start + rows] = torch.where(sound, found, before)
    return replace(grid, scale=scale)


def descended(weight: Tensor, H: Tensor, integers: Tensor, grid: Grid, order: Tensor) -> Tensor:
    """The integers after each column, in this order, took the best value that the others leave it."""
    columns = H[order][:, order]
    wrong = (weight - grid.values(integers))[:, order].T
    # Half the gradient by each weight; what lies ahead follows every change, within a block at once.
    slope = columns @ wrong
    groups = torch.div(order, grid.group_size, rounding_mode="floor")
    kept = integers[:, order].T.to(torch.float32).contiguous()
    diagonal = torch.diagonal(columns).clamp(min=torch.finfo(H.dtype).tiny)
    with torch.inference_mode():  # there torch takes a third less time for each small step
        for start in range(0, len(kept), BLOCK):
            end = min(start + BLOCK, len(kept))
            scales, zeros = (part.T[groups[start:end]].contiguous() for part in (grid.scale, grid.zero))
            steps = kept[start:end].sub_(zeros)
            moves = (scales * diagonal[start:end, None]).reciprocal_().clamp_(max=torch.finfo(H.dtype).max)
            taken, change = torch.empty_like(steps), torch.empty_like(steps)
            parts = slope[start:end], steps, moves, scales, grid.low - zeros, grid.high - zeros, taken, change
            for i, (near, before, move, scale, low, high, now, changed) in enumerate(zip(*parts, strict=True), start):
                torch.addcmul(before, near, move, out=now).round_().clamp_(low, high)
                torch.sub(before, now, out=changed).mul_(scale)
                slope[i + 1 : end].addr_(columns[i, i + 1 : end], changed)
            slope[end:].addmm_(columns[start:end, end:].T, change)
            torch.add(taken, zeros, out=steps)
    found = torch.empty_like(integers)
    found[:, order] = kept.T.to(integers.dtype)
    return found
