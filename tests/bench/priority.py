"""Short answers beside long ones in real vLLM here: how long they take first come, first served, and by priority.

Usage: python priority.py MODEL [--pairs N] [--long TOKENS] [--short TOKENS] [--at-once N]. Long and short requests
come in turn, all at the same moment; an answer's time is from there to its end. Priorities are those that the chat
sends: an answer as long as the earlier ones of its conversation is expected. Needs about three minutes on two cores.
"""

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path

from in_process import ENV

from workbench.chat.remaining import expected_tokens
from workbench.engine.profile import SCHEDULING
from workbench.events import ReplyDone

LIMIT = 512  # the chat's own: both kinds ask for it, so that only their history tells them apart


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of `values` do not exceed: the nearest rank, so that it was really measured."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]


def measure(model: Path, policy: str, kinds: list[tuple[str, int]], at_once: int) -> dict[str, list[float]]:
    """By kind, the seconds until each answer was complete."""
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    served = LLM(
        str(model), dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=at_once, seed=0,
        enable_prefix_caching=False, scheduling_policy=policy,
    )  # fmt: skip
    served.generate(["one two three"], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
    engine, taken, kind_of = served.llm_engine, {}, {}
    began = time.perf_counter()
    for number, (kind, tokens) in enumerate(kinds):
        earlier = [ReplyDone("stop", None, None, 1.0, 10, tokens, None)]
        expected = expected_tokens(LIMIT, earlier) if policy == "priority" else 0
        sampling = SamplingParams(temperature=0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True)
        engine.add_request(str(number), f"Text {number}: the keeper climbed the stairs", sampling, priority=expected)
        kind_of[str(number)] = kind
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                taken[output.request_id] = time.perf_counter() - began
    found = {kind: [taken[name] for name in taken if kind_of[name] == kind] for kind in ("short", "long")}
    del engine, served
    cleanup_dist_env_and_memory()
    gc.collect()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--long", type=int, default=48)
    parser.add_argument("--short", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    if "LD_PRELOAD" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENV)
    kinds = [kind for _ in range(given.pairs) for kind in (("long", given.long), ("short", given.short))]
    for policy in SCHEDULING:
        seconds = measure(given.model, policy, kinds, given.at_once)
        told = {
            f"{kind} {name}": round(percentile(seconds[kind], share), 2)
            for kind in ("short", "long")
            for name, share in (("median s", 0.5), ("p99 s", 0.99))
        }
        told["all s"] = round(max(map(max, seconds.values())), 2)
        print(json.dumps({"scheduling": policy, **told}), flush=True)


if __name__ == "__main__":
    main()
