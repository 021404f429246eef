"""AWQ (Lin et al., 2023, arXiv 2306.00978): enlarge the weights of loud inputs before rounding, shrink the inputs.

A candidate scale is scored by the output error tr(ΔW H ΔWᵀ) of plain rounding, so no forward pass is needed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workbench.quantization.grid import fit
from workbench.quantization.moments import output_error
from workbench.recipe import Choice

STEPS = 20  # exponents 0, 0.05 … 0.95
LIMIT = 1e3  # no channel is scaled by more, in either direction


def search_scale(
    weights: Sequence[Tensor], H: Tensor, choice: Choice, stored: torch.dtype, repeat: int = 1, head: int = 1
) -> Tensor:
    """The scale s of the inputs that the linear layers share: float32 [in], exponent 0 (all ones) included.

    weights: float32 [out, in] each; H: [in, in]. s = diag(H)^(α/2). Where grouped-query attention repeats each value
    head `repeat` times, channels of `head` size that come from the same value head get one scale.
    """
    loud = torch.diagonal(H).clone()
    if repeat > 1:
        loud = loud.view(-1, repeat, head).mean(1, keepdim=True).expand(-1, repeat, head).reshape(-1)
    alive = loud > 0
    if not alive.any():
        return torch.ones_like(loud)
    loud = torch.where(alive, loud, loud[alive].min()).clamp(min=1e-8 * loud.max().item())
    best, best_error = torch.ones_like(loud), float("inf")
    for step in range(STEPS):
        scale = loud ** (0.5 * step / STEPS)
        scale = (scale / scale.log().mean().exp()).clamp(1 / LIMIT, LIMIT)
        error = 0.0
        for weight in weights:
            enlarged = weight * scale
            grid = fit(enlarged, choice, stored)
            error += output_error((grid.values(grid.integers(enlarged)) - enlarged) / scale, H)
        if error < best_error:
            best, best_error = scale, error
    return best


def fold_norm(norm: nn.Module, linears: Sequence[nn.Linear], scale: Tensor, stored: torch.dtype) -> Tensor:
    """Divide the norm by `scale` and multiply the input columns of all its readers; returns the scale that was used.

    The norm is stored in 16 bit, so the columns take exactly the ratio that the stored norm leaves: the fold is
    exact. A channel whose norm would leave the stored dtype's range stays as it is.
    """
    used, kept = _exact(norm.weight, scale, stored)
    norm.weight.copy_(kept)
    for linear in linears:
        linear.weight.mul_(used)
    return used


def fold_rows(
    source: nn.Linear, reader: nn.Linear, scale: Tensor, repeat: int, head: int, stored: torch.dtype
) -> Tensor:
    """Divide the rows of `source` (v, up) by `scale` and multiply the columns of `reader` (o, down) that they feed.

    `scale` is per input of `reader`, [in]; each run of `head` channels is repeated `repeat` times in it, as heads
    are under grouped-query attention. Returns the scale that was used, per input of `reader`.
    """
    rows = scale.view(-1, repeat, head)[:, 0].reshape(-1)
    if source.bias is not None:
        rows, kept = _exact(source.bias, rows, stored)
        source.bias.copy_(kept)
    source.weight.div_(rows[:, None])
    used = rows.view(-1, 1, head).expand(-1, repeat, head).reshape(-1)
    reader.weight.mul_(used)
    return used


def _exact(vector: Tensor, scale: Tensor, stored: torch.dtype) -> tuple[Tensor, Tensor]:
    """The scale near `scale` by which the stored vector is divided exactly, and that stored vector."""
    kept = (vector / scale).to(stored).to(torch.float32)
    sound = (kept.abs() >= torch.finfo(stored).tiny) & torch.isfinite(kept)
    ratio = torch.where(sound, vector / torch.where(sound, kept, 1.0), 1.0)
    # A zero stays zero under any scale; what would leave the stored dtype's range is not scaled.
    return torch.where(vector == 0, scale, ratio), torch.where(sound, kept, vector)
