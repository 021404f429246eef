"""What the blocks of vLLM's cache are, kept up inside the engine core by reading those that its steps can have changed.

Reading all takes tens of milliseconds for a GPU's hundred thousand blocks, which every answer would feel.
"""

from collections.abc import Collection, Iterable
from itertools import repeat
from operator import attrgetter, is_not

import numpy as np


class Blocks:
    """`held` counts the requests that hold each block [n], `hashed` says whether its content can be found again [n].

    Both stand as of the last `refresh`; vLLM's own block counts as free.
    """

    def __init__(self, pool):
        self.pool = pool
        self._hash_of = attrgetter("_block_hash" if hasattr(pool.blocks[0], "_block_hash") else "block_hash")
        self._tables: dict[str, list[int]] = {}
        self._changed: set[int] = set()
        self._read_all()

    def take(self, scheduled) -> None:
        """Note the blocks that a planned step gives to requests, and whose it takes."""
        for name in getattr(scheduled, "preempted_req_ids", None) or ():
            self._changed.update(self._tables.pop(name, ()))
        for new in scheduled.scheduled_new_reqs:
            self._give(new.req_id, new.block_ids)
        cached = scheduled.scheduled_cached_reqs
        for name, groups in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if groups:
                self._give(name, groups)

    def refresh(self, living: Collection[str]) -> None:
        """Read what may have changed; `living` are the requests that the scheduler knows."""
        for name in [name for name in self._tables if name not in living]:
            self._changed.update(self._tables.pop(name))
        if self.pool.enable_caching:  # a held block gets its hash when it is full
            self._changed.update(np.flatnonzero((self.held > 0) & ~self.hashed).tolist())
        self._read(self._changed)
        self._changed = set()
        if not self._agrees():  # blocks were given back while their request goes on, as with a sliding window
            self._read(np.flatnonzero(self.held).tolist())
        if not self._agrees():
            self._read_all()

    def _give(self, name: str, groups: Iterable[Iterable[int]]) -> None:
        numbers = [number for group in groups for number in group]
        self._tables.setdefault(name, []).extend(numbers)
        self._changed.update(numbers)

    def _read(self, numbers: Collection[int]) -> None:
        own = self.pool.null_block.block_id
        read = [self.pool.blocks[number] for number in numbers if number != own]
        where = [block.block_id for block in read]
        self.held[where] = [block.ref_cnt for block in read]
        self.hashed[where] = [self._hash_of(block) is not None for block in read]

    def _read_all(self) -> None:
        blocks = self.pool.blocks
        self.held = np.fromiter(map(attrgetter("ref_cnt"), blocks), np.int64, len(blocks))
        self.hashed = np.fromiter(map(is_not, map(self._hash_of, blocks), repeat(None)), bool, len(blocks))
        own = self.pool.null_block.block_id
        self.held[own], self.hashed[own] = 0, False

    def _agrees(self) -> bool:
        """Whether as many are held as vLLM's gauge counts, and no hash outlived a reset of its prefix cache."""
        held = len(self.held) - 1 - self.pool.get_num_free_blocks()
        forgotten = not len(getattr(self.pool, "cached_block_hash_to_block", "?")) and self.hashed.any()
        return int(np.count_nonzero(self.held)) == held and not forgotten
