"""INT4 experts and multi-head latent attention in vLLM on one NVIDIA GPU, which no CPU can run.

`python tests/bench/families_cuda.py [FOLDER …] [--families mixtral deepseek_v2]`. Small random models of families with
experts or MLA are quantized by the layered recipe, loaded in vLLM in 16 bit, and each prompt token's log-probability is
compared with what our own float32 reading of the packed weights gives; the unquantized model beside it says what 16-bit
arithmetic alone costs. A FOLDER is a finished checkpoint that is loaded and compared as well. Several run side by side,
each in a process of its own that has `--limit` seconds and says where it stands shortly before they are over. Ends with
status 1 when a model fails or lies further off than that.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from family_models import write_family
from quantization_models import byte_tokenizer, quantized

from workbench.quantization.blocks import Skeleton

COMMON = {
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "initializer_range": 0.05, "num_hidden_layers": 2,
}  # fmt: skip
MOE = COMMON | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
MLA = COMMON | {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
    "kv_lora_rank": 512, "q_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "head_dim": 64, "num_attention_heads": 16, "num_key_value_heads": 16,
}  # fmt: skip
FAMILIES = {
    "mixtral": COMMON | {"num_local_experts": 8},
    "deepseek_v2": MLA | {"topk_method": "greedy", "scoring_func": "softmax"},
    "qwen3_moe": MOE,
    "deepseek_v3": MLA | {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 1024},
    "glm4_moe": MOE | {"n_routed_experts": 8, "num_key_value_heads": 2, "head_dim": 128},
}
TEXT = "The keeper climbed the stairs to light the great lamp; each of the steps creaked under him, and far below the "
WIDTH = 4.0  # INT4 may lie this many times as far off as 16-bit arithmetic alone
SIDE_BY_SIDE = 3
LEAST = 0.02  # nats that are never too far
CHILD = """
import faulthandler, json, sys, traceback
folders, prompt, share, limit = json.loads(sys.argv[3])
faulthandler.dump_traceback_later(limit - 5)
sys.path.insert(0, sys.argv[1])
from load_in_vllm import answer
answers = {}
# A fixed cache: measuring what is free fails where another program gives memory back meanwhile.
options = {"gpu_memory_utilization": share, "kv_cache_memory_bytes": 1 << 30}
for folder in folders:
    try:
        answers[folder] = answer(folder, prompt, "bfloat16", **options)
    except Exception as error:
        traceback.print_exc()
        answers[folder] = {"error": f"{type(error).__name__}: {error}"}
    open(sys.argv[2], "w").write(json.dumps(answers))
"""
ENGINE = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}  # fmt: skip


@torch.no_grad()
def expected(folder: Path, prompt: list[int]) -> tuple[list[float], int]:
    """Each prompt token's log-probability by our reading in float32, and the most likely next token."""
    skeleton = Skeleton(folder, torch.device("cuda"))
    skeleton.prove()
    hidden = skeleton.embed([torch.tensor([prompt])])[0].cuda()
    for index in range(len(skeleton)):
        hidden = skeleton.forward(skeleton.load(index), hidden)
    norm, head = skeleton.last()
    logits = skeleton.logits(norm(hidden) @ head.T).log_softmax(-1)[0]
    following = torch.tensor(prompt)[1:, None].cuda()
    return logits[:-1].gather(1, following)[:, 0].tolist(), int(logits[-1].argmax())


def loaded(folders: list[Path], prompt: list[int], place: Path, share: float, limit: int) -> tuple[dict, str]:
    """What vLLM answers for each of these, in a process of its own, and its last words where something went wrong."""
    out, log = (place / f"{folders[0].name}.{kind}" for kind in ("answers", "log"))
    given = json.dumps([[str(folder) for folder in folders], prompt, share, limit])
    with log.open("w") as file:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(Path(__file__).parents[1] / "engine"), str(out), given],
            env=os.environ | ENGINE, stdout=file, stderr=file,
        )  # fmt: skip
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
    found = json.loads(out.read_text()) if out.is_file() else {}
    wrong = status or any("error" in answer for answer in found.values())
    said = [line[:200] for line in log.read_text().splitlines() if not line.startswith("INFO")]
    answers = {str(folder): {"error": f"status {status}"} for folder in folders} | found
    return answers, "\n".join(said[-50:]) if wrong else ""


def distance(answer: dict, right: list[float]) -> float:
    """The mean of how far the prompt's log-probabilities lie apart, in nats."""
    apart = [abs(ours - theirs) for ours, theirs in zip(right, answer["given"], strict=True)]
    return sum(apart) / len(apart)


def compared(folders: list[Path], prompt: list[int], answers: dict) -> str:
    """One line; folders are the packed one and, where there is one, the unquantized."""
    name, apart, spread = folders[0].name, [], []
    for folder in folders:
        answer = answers[str(folder)]
        if "error" in answer:
            return f"{name:12} FAILED {folder.name}: {answer['error'][:300]}"
        right, first = expected(folder, prompt)
        apart.append(distance(answer, right))
        spread.append(torch.tensor(right).std().item())
        print(f"{folder.name}: next token {answer['tokens'][0]}, ours {first}; loaded in {answer['seconds']:.0f} s")
    bound = max(LEAST, WIDTH * apart[-1]) if len(folders) > 1 else 5 * LEAST
    kernels = ", ".join(answers[str(folders[0])]["kernels"])
    beside = f"unquantized {apart[1]:.5f}" if len(folders) > 1 else ""
    verdict = "" if apart[0] <= bound else "FAILED "
    return f"{name:12} {verdict}INT4 {apart[0]:.5f} nats {beside} (values spread {spread[0]:.2f}) {kernels}"


def main(finished: list[Path], families: list[str], share: float, limit: int) -> int:
    lines, pairs = [], [[folder] for folder in finished]
    prompt = byte_tokenizer()(TEXT)["input_ids"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as place:
        for family in families:
            plain, packed = Path(place) / f"{family}-plain", Path(place) / family
            try:
                quantized(write_family(plain, family, **FAMILIES[family]), packed, "layered", device="cuda")
                pairs.append([packed, plain])
            except Exception as error:  # the others are still worth a look
                lines.append(f"{family:12} FAILED {type(error).__name__}: {error}")
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            answers = list(pool.map(lambda pair: loaded(pair, prompt, Path(place), share, limit), pairs))
        for pair, (found, said) in zip(pairs, answers, strict=True):
            print(said)
            lines.append(compared(pair, prompt, found))
    print("\nhow far vLLM lies from our float32 reading of the same weights, mean over the prompt's tokens")
    print("\n".join(lines))
    print(torch.cuda.get_device_name(), *(f"{name} {version(name)}" for name in ("vllm", "torch", "transformers")))
    return int(any("FAILED" in line for line in lines))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folders", nargs="*", type=Path)
    options.add_argument("--families", nargs="*", default=list(FAMILIES), choices=FAMILIES)
    options.add_argument("--share", type=float, default=0.15, help="of the GPU's memory that each engine may take")
    options.add_argument("--limit", type=int, default=240, help="seconds for each")
    given = options.parse_args()
    sys.exit(main(given.folders, given.families, given.share, given.limit))
