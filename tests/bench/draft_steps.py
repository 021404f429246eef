"""Fixed draft tokens against draft tokens by load, in real vLLM here: tokens/s at one and at eight sequences.

Usage: python draft_steps.py MODEL [--tokens N]. n-grams draft for a prompt that quotes, so that drafts are taken.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from in_process import ENV

from workbench.engine.speculation import Speculation, config

WAYS = {"off": None, "4 always": Speculation("ngram", 4), "4 up to 2": Speculation("ngram", 4, steps=((2, 4),))}
BATCHES = (1, 8)
QUOTED = "The keeper climbed the spiral stairs every evening to light the great lamp, and every step creaked. " * 3


def measure(model: Path, way: Speculation | None, tokens: int) -> dict[int, tuple[float, list[list[int]]]]:
    """Sequences at once -> tokens a second, and the tokens themselves."""
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    engine = LLM(
        str(model), dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=max(BATCHES), seed=0,
        enable_prefix_caching=False, speculative_config=way and config(way),
    )  # fmt: skip
    sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    engine.generate(["one two three"], sampling, use_tqdm=False)
    found = {}
    for batch in BATCHES:
        began = time.perf_counter()
        results = engine.generate([f"Text {number}: {QUOTED}" for number in range(batch)], sampling, use_tqdm=False)
        seconds = time.perf_counter() - began
        found[batch] = batch * tokens / seconds, [list(result.outputs[0].token_ids) for result in results]
    del engine
    cleanup_dist_env_and_memory()
    gc.collect()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--way", choices=WAYS, help="measure this one alone, in this process")
    given = parser.parse_args()
    if given.way:
        found = measure(given.model, WAYS[given.way], given.tokens)
        print("found", json.dumps(list(found.values())), flush=True)
        return
    plain = None
    for way in WAYS:  # each in a process of its own: vLLM leaves traces behind
        command = [sys.executable, *sys.argv, "--way", way]
        told = subprocess.run(command, env=os.environ | ENV, capture_output=True, text=True, check=True)
        line = next(line for line in told.stdout.splitlines() if line.startswith("found "))
        found = json.loads(line.removeprefix("found "))
        plain = plain or found
        rates = {f"{batch} at once": round(rate, 2) for batch, (rate, _) in zip(BATCHES, found, strict=True)}
        same = all(tokens == others for (_, tokens), (_, others) in zip(found, plain, strict=True))
        print(json.dumps({"drafts": way, **rates, "same tokens": same}), flush=True)


if __name__ == "__main__":
    main()
