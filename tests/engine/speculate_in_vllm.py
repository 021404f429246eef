"""Child of test_drafts_in_vllm: answers the same prompts with one way of drafting after another, in one process.

Arguments: the file of the answers, and the runs as JSON: [name, model folder, speculative config or null]. An answer
holds the greedy tokens of each prompt, what was drafted and accepted, and the tokens that the KV cache holds.
"""

import json
import sys
from pathlib import Path

import torch
from rare_collection import collect
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

PROMPTS = [[5, 17, 200, 31, 99, 7, 63, 250, 12, 44, 301, 8], [9, 80, 9, 80, 9, 80, 9], [150, 3, 77, 21]]
COUNTERS = {"drafts": "num_drafts", "drafted": "num_draft_tokens", "accepted": "num_accepted_tokens"}


def answer(model: str, speculation: dict | None) -> dict:
    engine = LLM(
        model, dtype="float32", enforce_eager=True, max_model_len=128, seed=0, disable_log_stats=False,
        skip_tokenizer_init="use_heterogeneous_vocab" not in (speculation or {}), speculative_config=speculation,
    )  # fmt: skip
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
    results = engine.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], sampling, use_tqdm=False)
    counted = {metric.name: getattr(metric, "value", None) for metric in engine.get_metrics()}
    config = engine.llm_engine.vllm_config
    found = {"tokens": [list(result.outputs[0].token_ids) for result in results]}
    found["kv_tokens"] = config.cache_config.num_gpu_blocks * config.cache_config.block_size
    found |= {name: counted.get(f"vllm:spec_decode_{counter}") for name, counter in COUNTERS.items()}
    found["method"] = config.speculative_config and config.speculative_config.method
    del engine
    cleanup_dist_env_and_memory()
    return found


def main(out: str, runs: str) -> None:
    torch.set_num_threads(1)
    answers = {}
    for name, model, speculation in json.loads(runs):
        try:
            answers[name] = answer(model, speculation)
        except Exception as error:
            answers[name] = {"error": f"{type(error).__name__}: {error}"}
            cleanup_dist_env_and_memory()
        collect()
    Path(out).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
