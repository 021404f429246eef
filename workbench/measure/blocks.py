"""What the blocks of a KV cache are, counted."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from workbench import figures
from workbench.core_events import BlockMap


@dataclass(frozen=True, slots=True)
class Counts:
    """How many blocks are free, free but kept for reuse, held by one request, shared by several."""

    free: int
    cached: int
    held: int
    shared: int

    @property
    def values(self) -> dict[str, str]:
        """For a sentence."""
        return {name: figures.count(getattr(self, name)) for name in self.__slots__}

    @property
    def used(self) -> int:
        """What the engine's usage gauge counts."""
        return self.held + self.shared


def counts(refs: np.ndarray, hashed: np.ndarray) -> Counts:
    """Count blocks by reference count [blocks] and whether their content is known [blocks]."""
    free = refs == 0
    cached = int(np.count_nonzero(free & hashed))
    held = int(np.count_nonzero(refs == 1))
    return Counts(int(np.count_nonzero(free)) - cached, cached, held, len(refs) - int(np.count_nonzero(free)) - held)


def waste(maps: Iterable[BlockMap]) -> tuple[int, int] | None:
    """(places without a token, all places) in the blocks that requests hold; None where an engine cannot tell."""
    empty = places = 0
    for each in maps:
        if each.unfilled is None or each.block_size is None:
            return None
        empty += each.unfilled
        places += each.used * each.block_size
    return empty, places
