"""What the tap reads of a block pool, against the whole pool, while requests come, grow, share, are put back and go."""

import random
from types import SimpleNamespace as Thing

import numpy as np
import pytest

from workbench.engine.plugin_blocks import Blocks


class Pool:
    """As vLLM's: block 0 is its own, freed blocks keep their hash until they are given away, the oldest first."""

    def __init__(self, count, caching=True):
        self.enable_caching = caching
        self.blocks = [Thing(block_id=n, ref_cnt=0, _block_hash=None) for n in range(count)]
        self.null_block = self.blocks[0]
        self.null_block.ref_cnt = 1
        self.free = list(range(1, count))
        self.cached_block_hash_to_block = {}

    def get_num_free_blocks(self):
        return len(self.free)

    def give(self, count):
        numbers, self.free = self.free[:count], self.free[count:]
        for number in numbers:
            self.blocks[number].ref_cnt = 1
            if self.blocks[number]._block_hash is not None:
                self.cached_block_hash_to_block.pop(self.blocks[number]._block_hash)
                self.blocks[number]._block_hash = None
        return numbers

    def share(self, numbers):
        for number in numbers:
            if self.blocks[number].ref_cnt == 0:
                self.free.remove(number)
            self.blocks[number].ref_cnt += 1

    def take_back(self, numbers):
        for number in reversed(numbers):
            self.blocks[number].ref_cnt -= 1
            if self.blocks[number].ref_cnt == 0:
                self.free.append(number)

    def remember(self, number):
        if self.enable_caching and self.blocks[number]._block_hash is None:
            self.blocks[number]._block_hash = object()
            self.cached_block_hash_to_block[self.blocks[number]._block_hash] = self.blocks[number]

    def forget_all(self):
        self.cached_block_hash_to_block = {}
        for block in self.blocks:
            block._block_hash = None


def plan(new=None, grown=None, preempted=()):
    return Thing(
        scheduled_new_reqs=[Thing(req_id=name, block_ids=(numbers,)) for name, numbers in (new or {}).items()],
        scheduled_cached_reqs=Thing(req_ids=list(grown or ()), new_block_ids=[(n,) for n in (grown or {}).values()]),
        preempted_req_ids=set(preempted),
    )


def same(blocks, pool):
    whole = Blocks(pool)
    return np.array_equal(blocks.held, whole.held) and np.array_equal(blocks.hashed, whole.hashed)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_up_equals_the_whole(seed, caching, monkeypatch):
    chance, pool = random.Random(seed), Pool(300, caching)
    blocks, tables, name = Blocks(pool), {}, 0
    read = []
    do = blocks._read
    monkeypatch.setattr(blocks, "_read", lambda numbers: (read.append(len(numbers)), do(numbers)))
    monkeypatch.setattr(blocks, "_read_all", lambda: pytest.fail("read as a whole"))
    for step in range(600):
        new, grown, preempted = {}, {}, []
        for each in [each for each in tables if chance.random() < 0.04]:
            pool.take_back(tables.pop(each))
            preempted += [each] if chance.random() < 0.3 else []
        if len(pool.free) > 60 and chance.random() < 0.3:
            name += 1
            known = [block.block_id for block in pool.blocks if block._block_hash is not None][: chance.randrange(6)]
            pool.share(known)
            new[str(name)] = tables[str(name)] = known + pool.give(chance.randrange(1, 20))
        for each in [each for each in tables if each not in new and chance.random() < 0.1 and pool.free]:
            grown[each] = pool.give(1)
            tables[each] = tables[each] + grown[each]
        blocks.take(plan(new, grown, preempted))
        for numbers in tables.values():
            for number in numbers[:-1]:
                pool.remember(number)
        if step % 3 == 0:
            blocks.refresh(tables)
            assert same(blocks, pool)
    assert sum(read) / len(read) < 100, "of 300"
    for numbers in tables.values():
        pool.take_back(numbers)
    blocks.refresh({})
    assert same(blocks, pool) and not blocks.held.any() and blocks.hashed.any() == caching


def test_blocks_that_move_without_a_plan_are_found_by_the_sum():
    """A sliding window gives blocks back while the request goes on; another engine's cache comes without a plan."""
    pool = Pool(50)
    numbers = pool.give(10)
    blocks = Blocks(pool)
    pool.take_back(numbers[:4])
    blocks.refresh({"a": None})
    assert same(blocks, pool) and (blocks.held > 0).sum() == 6
    pool.give(5)
    blocks.refresh({"a": None})
    assert same(blocks, pool)


def test_a_reset_of_the_prefix_cache_forgets_every_hash():
    pool = Pool(50)
    for number in pool.give(10):
        pool.remember(number)
    blocks = Blocks(pool)
    pool.take_back(list(range(1, 11)))
    pool.forget_all()
    blocks.refresh({})
    assert same(blocks, pool) and not blocks.hashed.any()
