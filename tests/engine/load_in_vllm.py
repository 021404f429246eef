"""Child of test_int4_in_vllm: loads checkpoints into vLLM one after another, in one process that imports it once.

Arguments: the file of the answers, the token ids of the prompt as JSON, then the folders. An answer holds the greedy
tokens, the log-probability of every prompt token after the first, and how long the load took.
"""

import json
import sys
import time
from pathlib import Path

import torch
from rare_collection import collect
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory


def answer(folder: str, prompt: list[int], dtype: str, **options) -> dict:
    began = time.monotonic()
    engine = LLM(
        folder, dtype=dtype, enforce_eager=True, max_model_len=128, skip_tokenizer_init=True, seed=0, **options
    )
    seconds = time.monotonic() - began
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, prompt_logprobs=0, detokenize=False)
    (result,) = engine.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
    given = [entry[token].logprob for token, entry in zip(prompt[1:], result.prompt_logprobs[1:], strict=True)]
    model = engine.llm_engine.model_executor.driver_worker.model_runner.model
    names = {name for name, _ in model.named_parameters() if "packed" in name or "zero_point" in name}
    kernels = {type(module.scheme.kernel).__name__ for module in model.modules() if hasattr(module, "scheme")}
    holders = [module for module in model.modules() if hasattr(module, "w13_weight_packed")]
    experts = {type(getattr(module, "quant_method", module)).__name__ for module in holders}
    tokens = list(result.outputs[0].token_ids)
    del engine, model
    cleanup_dist_env_and_memory()
    return {
        "tokens": tokens,
        "given": given,
        "seconds": seconds,
        "packed": sorted(names),
        "kernels": sorted(kernels | experts),
    }


def main(out: str, prompt: str, *folders: str) -> None:
    torch.set_num_threads(1)
    answers = {}
    for folder in folders:
        path, _, dtype = folder.partition("@")
        try:
            answers[folder] = answer(path, json.loads(prompt), dtype or "float32")
        except Exception as error:
            answers[folder] = {"error": f"{type(error).__name__}: {error}"}
        collect()
        Path(out).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
