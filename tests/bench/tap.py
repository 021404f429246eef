"""What the tap costs real vLLM here: the steps with it and without, some in turn, and its own time in a step.

Usage: python tap.py MODEL [--rounds N] [--tokens N] [--at-once N]. A listener in a process of its own reads all along,
as the window does. Without means: nothing recorded, nothing sent. Prints each round's speeds from the median of its
steps with their ratio, and what a map of larger caches takes to read and pack.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from in_process import ENV

READS = (
    "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(sys.argv[1])\n"
    "print('bound', flush=True)\nwhile True: s.recv(2**20)"
)
TURN = 4  # steps
CACHES = (1_000, 10_000, 100_000, 400_000)


def measure(model: Path, rounds: int, tokens: int, at_once: int) -> dict:
    """Seconds of each round's steps with the tap and without, and the tap's own time in each of the first."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(model), dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=at_once, seed=0, block_size=32
    ).llm_engine
    scheduler = engine.engine_core.engine_core.scheduler
    tap = scheduler._tap
    assert tap is not None and tap._socket is not None, "the plugin did not set the tap up"
    on, off = _Timed(tap, tap.step), _Timed(tap, lambda *step: None)
    sampling = SamplingParams(temperature=0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True)
    found = []
    for number in range(rounds + 1):
        for each in range(at_once):
            engine.add_request(f"{number}/{each}", f"Text {each}: the keeper climbed the stairs", sampling)
        taken = {"on": [], "off": []}
        steps = 0
        while engine.has_unfinished_requests():
            way = "on" if steps // TURN % 2 else "off"
            scheduler._tap = on if way == "on" else off
            began_s = time.perf_counter()
            engine.step()
            if steps >= 2 * TURN:  # the prompts are through
                taken[way].append(time.perf_counter() - began_s)
            steps += 1
        if number:  # the first warms up
            found.append(taken | {"own": on.taken_s[-len(taken["on"]) :]})
    return {"blocks": len(tap.pool.blocks), "rounds": found}


class _Timed:
    """The tap's two calls in each step, `step` in place of its own, their time kept."""

    def __init__(self, tap, step):
        self.tap, self._step, self.taken_s = tap, step, []
        self._planned_s = 0.0

    def plan(self, scheduled) -> None:
        began_s = time.perf_counter()
        self.tap.plan(scheduled)
        self._planned_s = time.perf_counter() - began_s

    def step(self, *arguments) -> None:
        began_s = time.perf_counter()
        self._step(*arguments)
        self.taken_s.append(time.perf_counter() - began_s + self._planned_s)


def map_ms(count: int) -> tuple[float, float]:
    """Milliseconds for the first map of a half full cache, and for one after a step that gave out 64 blocks."""
    from workbench.engine.plugin_tap import Tap

    blocks = [_Block(n, n % 2, b"h") for n in range(count)]
    free = sum(not block.ref_cnt for block in blocks[1:])
    pool = SimpleNamespace(
        blocks=blocks, null_block=blocks[0], enable_caching=True, get_num_free_blocks=lambda: free,
        cached_block_hash_to_block=blocks,
    )  # fmt: skip
    scheduler = SimpleNamespace(
        kv_cache_manager=SimpleNamespace(block_pool=pool), running=[], requests={},
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace()),
    )  # fmt: skip
    tap = Tap(scheduler, "/nonexistent")
    given = SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id="a", block_ids=(range(1, 129, 2),))],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], new_block_ids=[]),
    )
    taken = []
    for _ in range(6):
        began_s = time.perf_counter()
        tap._block_map(0.0)
        taken.append((time.perf_counter() - began_s) * 1e3)
        tap.plan(given)
    return taken[0], statistics.median(taken[1:])


class _Block:
    """As vLLM's."""

    __slots__ = ("_block_hash", "block_id", "ref_cnt")

    def __init__(self, block_id: int, ref_cnt: int, block_hash: bytes):
        self.block_id, self.ref_cnt, self._block_hash = block_id, ref_cnt, block_hash


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--tokens", type=int, default=100)
    arguments.add_argument("--at-once", type=int, default=8)
    given = arguments.parse_args()
    if "LATHE_TAP" in os.environ:
        print(json.dumps(measure(given.model, given.rounds, given.tokens, given.at_once)))
        return
    for blocks in CACHES:
        first, later = map_ms(blocks)
        print(f"a map of {blocks:,} blocks: the first {first:.2f} ms, later ones {later:.2f} ms")
    with tempfile.TemporaryDirectory(prefix="lathe-bench-") as folder:
        path = str(Path(folder) / "tap")
        with subprocess.Popen([sys.executable, "-c", READS, path], stdout=subprocess.PIPE) as listener:
            listener.stdout.readline()
            try:
                env = {**os.environ, **ENV, "LATHE_TAP": path}
                done = subprocess.run(
                    [sys.executable, *sys.argv], env=env, stdout=subprocess.PIPE, text=True, check=True
                )
            finally:
                listener.terminate()
    found = json.loads(done.stdout.splitlines()[-1])
    ratios = []
    for taken in found["rounds"]:
        on, off = (statistics.median(taken[way]) for way in ("on", "off"))
        ratios.append(off / on)
        print(f"on {given.at_once / on:.1f} tok/s, off {given.at_once / off:.1f} tok/s: {off / on:.3f}")
    own_ms = [seconds * 1e3 for taken in found["rounds"] for seconds in taken["own"]]
    share = sum(own_ms) / 1e3 / sum(sum(taken["on"]) for taken in found["rounds"])
    print(
        f"speed with the tap ÷ without, median of rounds: {statistics.median(ratios):.3f}; its own time in a step: "
        f"median {statistics.median(own_ms):.3f} ms, mean {statistics.mean(own_ms):.3f} ms, {share:.2%} of all "
        f"({found['blocks']} blocks)"
    )


if __name__ == "__main__":
    main()
