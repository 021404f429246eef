"""One offer for each of many parts within a budget, with the least damage in all."""

from bisect import bisect_left
from collections.abc import Sequence

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
    states: list[tuple[int, float, tuple | None]] = [(0, 0.0, None)]
    for offers, smallest in zip(parts, least, strict=True):
        rest -= smallest
        grown = [
            (size + own, damage + harm, (index, chain))
            for size, damage, chain in states
            for index, (own, harm) in enumerate(offers)
            if size + own + rest <= budget
        ]
        states = _unbeaten(grown)
        if len(states) > STATES:
            states = _thinned(states)
    chain, chosen = states[-1][2], []
    while chain:
        index, chain = chain
        chosen.append(index)
    return tuple(reversed(chosen))


def _unbeaten(states: list[tuple[int, float, tuple | None]]) -> list[tuple[int, float, tuple | None]]:
    """By rising size and falling damage, without those that a smaller one equals or beats."""
    kept: list[tuple[int, float, tuple | None]] = []
    for state in sorted(states, key=lambda state: state[:2]):
        if not kept or state[1] < kept[-1][1]:
            kept.append(state)
    return kept


def _thinned(states: list[tuple[int, float, tuple | None]]) -> list[tuple[int, float, tuple | None]]:
    """The least damage in each of STATES equal ranges of size."""
    low, high = states[0][0], states[-1][0]
    ends = [low + (high - low) * step / STATES for step in range(1, STATES)]
    found = {bisect_left(ends, state[0]): state for state in states}  # the last of a range has its least damage
    return [states[0], *(state for state in found.values() if state is not states[0])]
