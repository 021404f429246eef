"""One offer for each of many parts within a budget, with the least damage in all."""

from collections.abc import Sequence

import numpy as np

STATES = 1500  # partial mixes that are followed at once; below that the answer is exact


def allocate(parts: Sequence[Sequence[tuple[int, float]]], budget: int) -> tuple[int, ...] | None:
    """One offer (bytes, damage) of each part, by index: at most `budget` bytes in all, the least damage.

    Every mix that no other beats in both is followed. Exact while those stay below STATES, else within about a part
    in STATES of the budget. None where even the smallest offers are too much.
    """
    least = [min(size for size, _ in offers) for offers in parts]
    rest = sum(least)
    if rest > budget:
        return None
    sizes, damages = np.zeros(1, np.int64), np.zeros(1)
    steps: list[tuple[np.ndarray, np.ndarray]] = []  # of each mix that is followed: its last offer, the mix before
    for offers, smallest in zip(parts, least, strict=True):
        rest -= smallest
        own = np.array([size for size, _ in offers], np.int64)[:, None]
        harm = np.array([damage for _, damage in offers], np.float64)[:, None]
        grown, worse = (sizes + own).ravel(), (damages + harm).ravel()
        order = _unbeaten(grown, worse, np.flatnonzero(grown + rest <= budget))
        if len(order) > STATES:
            order = order[_thinned(grown[order])]
        steps.append((order // len(sizes), order % len(sizes)))
        sizes, damages = grown[order], worse[order]
    at, chosen = len(sizes) - 1, []
    for offered, before in reversed(steps):
        chosen.append(int(offered[at]))
        at = before[at]
    return tuple(reversed(chosen))


def _unbeaten(sizes: np.ndarray, damages: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Those of `among` that no smaller one equals or beats, by rising size and falling damage."""
    order = among[np.lexsort((damages[among], sizes[among]))]
    least = np.minimum.accumulate(damages[order])
    return order[np.r_[True, damages[order][1:] < least[:-1]]]


def _thinned(sizes: np.ndarray) -> np.ndarray:
    """Which of these rising sizes to follow: the first, and the last in each of STATES equal ranges of size."""
    ends = np.linspace(sizes[0], sizes[-1], STATES + 1)[1:-1]
    ranges = np.searchsorted(ends, sizes)  # the last of a range has its least damage
    last = np.flatnonzero(np.append(np.diff(ranges), 1))
    return last if last[0] == 0 else np.r_[0, last]
