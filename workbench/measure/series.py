"""Arithmetic of figures over time: what a plot of them can show."""

import math
from collections.abc import Iterable

import numpy as np

from workbench.core_events import BlockMap
from workbench.engine_events import EngineSample
from workbench.events import ReplyDone

LONGEST_GAP_S = 5.0
"""Two neighbours further apart than this are not joined: nobody measured in between."""


def median(values: Iterable[float | None]) -> float | None:
    """The middle value; None of nothing."""
    return percentile(values, 50)


def percentile(values: Iterable[float | None], percent: float) -> float | None:
    """The value that `percent` of all do not exceed, interpolated between neighbours; None of nothing."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(np.percentile(known, percent)) if known else None


def line(
    points: Iterable[tuple[float, float | None]], buckets: int = 600, gap_s: float = LONGEST_GAP_S
) -> tuple[np.ndarray, np.ndarray]:
    """Points (at_s, value) as arrays x [n], y [n] to draw, NaN where the line must break.

    A missing value breaks the line, and so does a silence longer than `gap_s`. Above `buckets` × 2 points only the
    lowest and highest of each bucket are kept, with its gap if it has one: at a bucket a pixel the picture is the same.
    """
    pairs = list(points)
    x = np.array([at_s for at_s, _ in pairs], dtype=float)
    y = np.array([math.nan if value is None else value for _, value in pairs], dtype=float)
    y[~np.isfinite(y)] = math.nan
    silences = np.flatnonzero(np.diff(x) > gap_s) + 1
    x = np.insert(x, silences, x[silences - 1] if silences.size else [])
    y = np.insert(y, silences, math.nan)
    return _reduced(x, y, buckets)


def _reduced(x: np.ndarray, y: np.ndarray, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """At most three points of each bucket: its lowest, its highest, its first gap, in their order."""
    size = len(x) // buckets
    if size < 2:
        return x, y
    rest = -len(x) % size
    padded = np.append(y, np.full(rest, math.nan)).reshape(-1, size)
    missing = np.isnan(padded)
    missing[-1, size - rest :] = False  # the padding is no gap of the data
    starts = np.arange(len(padded)) * size
    lowest = starts + np.where(np.isnan(padded), np.inf, padded).argmin(1)
    highest = starts + np.where(np.isnan(padded), -np.inf, padded).argmax(1)
    broken = (starts + missing.argmax(1))[missing.any(1)]
    kept = np.unique(np.concatenate([lowest, highest, broken]))
    return x[kept], y[kept]


def alone(y: np.ndarray) -> np.ndarray:
    """Which points of a line stand between two gaps: true [n], of no length as a line and yet a measurement."""
    gap = np.isnan(np.concatenate([[math.nan], y, [math.nan]]))
    return ~gap[1:-1] & gap[:-2] & gap[2:]


def blocks(map_: BlockMap) -> tuple[np.ndarray, np.ndarray]:
    """How many requests hold each block and whether it is hashed: uint8 [n] and bool [n], without vLLM's own block."""
    states = np.frombuffer(map_.states, dtype=np.uint8)
    held = states & 127
    own = held == BlockMap.NULL
    return held[~own], (states >= BlockMap.HASHED)[~own]


def by_position(sample: EngineSample | None) -> tuple[float, ...]:
    """The share of all drafts since the start of which the token at each position was accepted; empty before any."""
    if sample is None or not sample.drafts:
        return ()
    return tuple(accepted / sample.drafts for accepted in sample.accepted_per_position)


def share(part: float | None, whole: float | None) -> float | None:
    """`part` of `whole`; None where either is unknown or there is no whole yet."""
    return None if part is None or not whole else part / whole


def blocks_used(sample: EngineSample | None) -> tuple[int, int] | None:
    """(used, usable) blocks of the KV cache. vLLM keeps one block for itself: its usage is of the others."""
    if sample is None or sample.kv_usage is None or not sample.kv_blocks:
        return None
    usable = sample.kv_blocks - 1
    return round(sample.kv_usage * usable), usable


def between_tokens_s(reply: ReplyDone) -> float | None:
    """Mean seconds from one token to the next of one reply, tokens after its first chunk; None when not measured."""
    return 1 / reply.tokens_per_s if reply.tokens_per_s else None
