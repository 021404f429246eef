"""One weight to integers, by the method that its choice names."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.quantization import gptq, refine
from workbench.quantization.grid import Grid, fit, shrinks
from workbench.quantization.moments import output_error
from workbench.recipe import Choice

SHARES = (1.0, 1.2, 0.8, 0.6, 0.4, 0.2)  # of what the search for ranges takes off them


@dataclass(frozen=True, slots=True)
class Rounded:
    """int8 [out, in] on its grid; `fallback` names the method that had to be used instead of the chosen one.

    `unrefined` is the output error tr(ΔW H ΔWᵀ) before refinement, where there was one.
    """

    integers: Tensor
    grid: Grid
    damping: float | None = None
    fallback: str = ""
    unrefined: float | None = None


def nearest(weight: Tensor, choice: Choice, stored: torch.dtype, fallback: str = "") -> Rounded:
    """Round to nearest over each group's full range (RTN), the baseline."""
    grid = fit(weight, choice, stored)
    return Rounded(grid.integers(weight), grid, fallback=fallback)


def rounded(weight: Tensor, H: Tensor | None, choice: Choice, stored: torch.dtype) -> Rounded:
    """weight: float32 [out, in], already scaled where AWQ scales; H: its inputs' second moments [in, in]."""
    if choice.method == "rtn":
        return nearest(weight, choice, stored)
    if H is None or not torch.diagonal(H).any():
        return nearest(weight, choice, stored, fallback="rtn")
    shrink = shrinks(weight, H, choice, stored, floor=0.01) if choice.clip else None
    if "gptq" not in choice.method:
        grid = _grid(weight, choice, stored, shrink)
        return Rounded(grid.integers(weight), grid)
    factor = gptq.factor(H, choice.damping, choice.order == "static")
    if not factor:
        return nearest(weight, choice, stored, fallback="rtn")
    if not choice.refine:
        grid = _grid(weight, choice, stored, shrink)
        return Rounded(gptq.round_with(weight, factor, grid)[0], grid, factor.damping)
    integers, grid = _best_start(weight, factor, choice, stored, shrink)
    before = output_error(weight - grid.values(integers), H)
    return Rounded(*refine.refined(weight, H, integers, grid, stored), factor.damping, unrefined=before)


def _grid(weight: Tensor, choice: Choice, stored: torch.dtype, shrink: Tensor | None, share: float = 1.0) -> Grid:
    """Over each group's range, shrunk by this share of what `shrink` takes off it."""
    return fit(weight, choice, stored, 1.0 if shrink is None else 1 - share * (1 - shrink), turned=True)


def _best_start(
    weight: Tensor, factor: gptq.Factor, choice: Choice, stored: torch.dtype, shrink: Tensor | None
) -> tuple[Tensor, Grid]:
    """What GPTQ makes of each row on the grid that suits the row best: the search for ranges knows nothing of the
    rounding, which makes up for much that plain rounding would lose at the ends of a wider range."""
    grid = _grid(weight, choice, stored, shrink, SHARES[0])
    integers, least = gptq.round_with(weight, factor, grid)
    for share in SHARES[1:] if shrink is not None else ():
        other = _grid(weight, choice, stored, shrink, share)
        found, errors = gptq.round_with(weight, factor, other)
        better = errors < least
        integers, least = torch.where(better[:, None], found, integers), torch.where(better, errors, least)
        grid = grid.with_rows(better, other)
    return integers, grid
