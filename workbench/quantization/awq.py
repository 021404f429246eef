"""AWQ (Lin et al., 2023, arXiv 2306.00978): enlarge the weights of loud inputs before rounding, shrink the inputs.

A candidate scale is scored by the output error tr(ΔW H ΔWᵀ) of plain rounding, so no forward pass is needed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workbench.quantization import moments
from workbench.quantization.grid import fit
from workbench.recipe import Choice

STEPS = 20  # exponents 0, 0.05 … 0.95
LIMIT = 1e3  # no channel is scaled by more, in either direction
TOGETHER = 1 << 22  # errors of all candidates up to which H is read once for all of them


def search_scale(
    weights: Sequence[Tensor], H: Tensor, choice: Choice, stored: torch.dtype, alike: Tensor | None = None
) -> Tensor:
    """The scale s of the inputs that the linear layers share: float32 [in], exponent 0 (all ones) included.

    weights: float32 [out, in] each; H: [in, in]. s = diag(H)^(α/2); without scale search α is 1/2. Inputs that have
    the same number in `alike` [in] get one scale, as those from one value head under grouped-query attention.
    """
    loud = torch.diagonal(H).clone()
    if alike is not None:
        sums = torch.zeros(int(alike.max()) + 1, device=H.device).index_add_(0, alike, loud)
        loud = (sums / torch.bincount(alike).clamp(min=1))[alike]
    alive = loud > 0
    if not alive.any():
        return torch.ones_like(loud)
    loud = torch.where(alive, loud, loud[alive].min()).clamp(min=1e-8 * loud.max().item())
    scales = [loud ** (0.5 * step / STEPS) for step in (range(STEPS) if choice.scale else (STEPS // 2,))]
    scales = [(scale / scale.log().mean().exp()).clamp(1 / LIMIT, LIMIT) for scale in scales]
    if len(scales) * sum(weight.numel() for weight in weights) <= TOGETHER:
        some = torch.cat(list(weights))
        wrong = torch.stack([_wrong(some, scale, choice, stored) for scale in scales])
        errors = moments.errors(wrong.flatten(0, 1), H).view(wrong.shape[:2]).sum(1)
    else:
        errors = torch.stack(
            [sum(moments.error_sum(_wrong(weight, scale, choice, stored), H) for weight in weights) for scale in scales]
        )
    # The GPU is asked once, not for every candidate.
    return scales[int(errors.nan_to_num(nan=float("inf")).argmin())]


def _wrong(weight: Tensor, scale: Tensor, choice: Choice, stored: torch.dtype) -> Tensor:
    """What plain rounding of the enlarged weight leaves wrong in the weight itself."""
    enlarged = weight * scale
    return fit(enlarged, choice, stored, turned=True).nearest(enlarged).sub_(enlarged).div_(scale)


def fold_norm(
    norm: nn.Module, linears: Sequence[nn.Linear], scale: Tensor, stored: torch.dtype, offset: float = 0.0
) -> Tensor:
    """Divide the norm by `scale` and multiply the input columns of all its readers; returns the scale that was used.

    The norm is stored in 16 bit, so the columns take exactly the ratio that the stored norm leaves: the fold is
    exact. `offset` is what the norm adds to its weight (1 in Gemma). A channel whose norm would leave the stored
    dtype's range stays as it is.
    """
    used, kept = _exact(norm.weight, scale, stored, offset)
    norm.weight.copy_(kept)
    for linear in linears:
        linear.weight.mul_(used)
    return used


def fold_rows(source: nn.Linear, reader: nn.Linear, scale: Tensor, rows: Tensor, stored: torch.dtype) -> Tensor:
    """Divide the rows of `source` (v, up) by `scale` and multiply the columns of `reader` (o, down) that they feed.

    `scale` is per input of `reader`, [in], and `rows` [in] names the row of `source` that each input follows; inputs
    of one row have one scale. Returns the scale that was used, per input of `reader`.
    """
    whole = torch.ones(source.out_features, device=scale.device)
    whole[rows] = scale
    if source.bias is not None:
        whole, kept = _exact(source.bias, whole, stored)
        source.bias.copy_(kept)
    source.weight.div_(whole[:, None])
    used = whole[rows]
    reader.weight.mul_(used)
    return used


def _exact(vector: Tensor, scale: Tensor, stored: torch.dtype, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    """The scale near `scale` by which the stored vector is divided exactly, and that stored vector.

    What counts is vector + offset.
    """
    kept = ((vector + offset) / scale - offset).to(stored).to(torch.float32)
    acts = kept + offset
    sound = (acts.abs() >= torch.finfo(stored).tiny) & torch.isfinite(kept)
    ratio = torch.where(sound, (vector + offset) / torch.where(sound, acts, 1.0), 1.0)
    # A zero stays zero under any scale; what would leave the stored dtype's range is not scaled.
    return torch.where(vector + offset == 0, scale, ratio), torch.where(sound, kept, vector)
