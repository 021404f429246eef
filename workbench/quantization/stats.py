"""What can be said of a tensor's values: counts, tails, errors."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 120
OUTLIER_SIGMAS = 4.0
PIECE = 1 << 24  # float32 working copies stay below 64 MB each


@dataclass(frozen=True, slots=True)
class Spread:
    """The range that a histogram shows, and the tails.

    `kurtosis` is the excess (0 for a normal distribution); `outliers` the share of values more than four standard
    deviations from the mean. `low` < `high` always; values outside go into the end bins.
    """

    low: float
    high: float
    not_finite: int
    kurtosis: float
    outliers: float


def spread(values: Tensor) -> Spread:
    """Look over the finite values of a tensor of any dtype and size, in pieces."""
    flat = values.reshape(-1)
    lowest, highest, finite = math.inf, -math.inf, 0
    for piece in _pieces(flat):
        lowest, highest = min(lowest, piece.min().item()), max(highest, piece.max().item())
        finite += piece.numel()
    if not finite:
        return Spread(-1.0, 1.0, flat.numel(), 0.0, 0.0)
    peak = max(-lowest, highest) or 1.0  # powers of what is divided by it stay inside float32
    clean = finite == flat.numel()
    total = sum(((piece / peak).sum(dtype=torch.float64).item() for piece in _pieces(flat, clean)), 0.0)
    mean = total / finite
    second = fourth = 0.0
    for piece in _pieces(flat, clean):
        square = (piece / peak - mean).square_()
        second += square.sum(dtype=torch.float64).item()
        fourth += square.square_().sum(dtype=torch.float64).item()
    deviation = math.sqrt(second / finite)
    spreads = deviation > 1e-6 * max(abs(mean), 1e-6)
    kurtosis = fourth / finite / deviation**4 - 3 if spreads else 0.0
    mean, deviation = mean * peak, deviation * peak
    far = OUTLIER_SIGMAS * deviation
    outside = sum(int(((piece - mean).abs() > far).sum()) for piece in _pieces(flat, clean)) if spreads else 0
    # A far outlier would squeeze all the rest into one bin, so the picture ends at ten standard deviations.
    low, high = max(lowest, mean - 10 * deviation), min(highest, mean + 10 * deviation)
    if not spreads or not high > low:
        around = max(abs(mean), 1e-6) / 2
        low, high = mean - around, mean + around
    return Spread(low, high, flat.numel() - finite, kurtosis, outside / finite)


def counts(values: Tensor, low: float, high: float) -> tuple[int, ...]:
    """Finite values over equal bins from `low` to `high`; the end bins hold what lies outside."""
    total = torch.zeros(BINS, dtype=torch.int64)
    usual = 1e-30 < high - low < 1e30  # what lies beyond leaves float32 on the way
    for piece in _pieces(values.reshape(-1)):
        piece = piece if usual else piece.double()
        bins = ((piece - low) * (BINS / (high - low))).clamp_(0, BINS - 1).to(torch.int32)
        total += torch.bincount(bins, minlength=BINS).cpu()
    return tuple(total.tolist())


def sqnr_db(relative_error: float | None) -> float | None:
    """Signal to quantization noise in dB; None where there is no error to speak of."""
    return -10 * math.log10(relative_error) if relative_error and relative_error > 0 else None


def is_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite. The extremes tell, and take a fifteenth of the time of asking each value."""
    if values.dtype not in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        return bool(torch.isfinite(values.to(torch.float32)).all())
    return not values.numel() or all(math.isfinite(extreme.item()) for extreme in torch.aminmax(values))


def largest(values: Tensor) -> float:
    """The largest absolute value of a tensor whose values are all finite; 0 for an empty one."""
    low, high = torch.aminmax(values) if values.numel() else (torch.zeros(()),) * 2
    return max(-low.item(), high.item())


def _pieces(flat: Tensor, clean: bool = False) -> Iterator[Tensor]:
    """The finite values in float32; `clean` spares looking for others."""
    for piece in flat.split(PIECE):
        piece = piece.to(torch.float32)
        kept = piece if clean or is_finite(piece) else piece[torch.isfinite(piece)]
        if kept.numel():
            yield kept
