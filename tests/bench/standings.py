"""The arithmetic of the bench's tables: bits, means and spreads, ratios and goals. No model is touched here."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from workbench.catalog.headers import Tensor

SAME_BITS = 0.01
PACKED = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx")


@dataclass(frozen=True, slots=True)
class Measure:
    """One model on one kind of text, or on several together."""

    tokens: int
    kl: float
    perplexity: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of several calibration seeds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.low:.4f}–{self.high:.4f})" if self.low < self.high else f"{self.mean:.4f}"


@dataclass(frozen=True, slots=True)
class Goal:
    """Whether our figure is at most `bar` of theirs, for the worst of our seeds against the best of theirs."""

    ours: Spread
    theirs: Spread
    bar: float

    @property
    def ratio(self) -> float:
        return self.ours.mean / self.theirs.mean

    @property
    def worst(self) -> float:
        return self.ours.high / self.theirs.low

    @property
    def met(self) -> bool:
        return self.worst <= self.bar

    def __str__(self) -> str:
        verdict = "met" if self.met else "met in the mean only" if self.ratio <= self.bar else "MISSED"
        return f"{self.ratio:.3f} of theirs, at worst {self.worst:.3f} (bar {self.bar}): {verdict}"


def stored_bits(tensors: Iterable[Tensor]) -> float:
    """Bits for each quantized weight, scales and zero points included, from the headers of a packed checkpoint."""
    bits, weights, shapes = 0, 0, {}
    for tensor in tensors:
        module, _, part = tensor.name.rpartition(".")
        if part in PACKED:
            bits += 8 * tensor.bytes
            shapes.setdefault(module, {})[part] = tensor.shape
    for parts in shapes.values():
        rows, words = parts["weight_packed"]
        weights += rows * words * 8  # eight weights of 4 bits in a word
    if not weights:
        raise ValueError("no packed weights")
    return bits / weights


def same_bits(one: float, other: float) -> bool:
    """Whether two checkpoints may be compared: their stored bits differ by at most 1 %."""
    return abs(one / other - 1) <= SAME_BITS


def together(measures: Iterable[Measure]) -> Measure:
    """Several kinds of text as one, each token counting the same."""
    parts = list(measures)
    tokens = sum(part.tokens for part in parts)
    kl = sum(part.tokens * part.kl for part in parts) / tokens
    loss = sum(part.tokens * math.log(part.perplexity) for part in parts) / tokens
    return Measure(tokens, kl, math.exp(loss))


def spread(values: Iterable[float]) -> Spread:
    found = list(values)
    return Spread(fmean(found), min(found), max(found))


def best_of(rivals: Mapping[str, Spread]) -> str:
    """The name of the rival with the lowest mean."""
    return min(rivals, key=lambda name: rivals[name].mean)
