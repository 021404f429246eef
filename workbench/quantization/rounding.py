"""One weight to integers, by the method that its choice names."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.quantization import gptq, refine
from workbench.quantization.grid import Grid, fit, search
from workbench.quantization.moments import output_error
from workbench.recipe import Choice


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
    grid = fit(weight, choice, stored, turned=True)
    if choice.clip:
        grid = search(weight, H, choice, stored, floor=0.01)
    if "gptq" not in choice.method:
        return Rounded(grid.integers(weight), grid)
    found = gptq.round_columns(weight, H, grid, choice.damping, choice.order == "static")
    if not found:
        return nearest(weight, choice, stored, fallback="rtn")
    integers, damping = found
    if not choice.refine:
        return Rounded(integers, grid, damping)
    before = output_error(weight - grid.values(integers), H)
    return Rounded(*refine.refined(weight, H, integers, grid, stored), damping, unrefined=before)
