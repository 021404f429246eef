"""INT4 experts and multi-head latent attention in vLLM on one NVIDIA GPU, which no CPU can run.

`python tests/bench/families_cuda.py [FOLDER …]`. Small random models of families with experts or MLA are quantized by
the layered recipe, loaded in vLLM in 16 bit, and each prompt token's log-probability is compared with what our own
float32 reading of the packed weights gives; the unquantized model beside it says what 16-bit arithmetic alone costs. A
FOLDER is a finished checkpoint that is only loaded and compared. Ends with status 1 when a model fails or lies further
off than that.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from family_models import write_family
from quantization_models import byte_tokenizer, quantized

from workbench.quantization.blocks import Skeleton

COMMON = {
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "initializer_range": 0.05, "num_hidden_layers": 3,
}  # fmt: skip
MOE = COMMON | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
MLA = COMMON | {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
    "kv_lora_rank": 512, "q_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "head_dim": 64, "num_attention_heads": 16, "num_key_value_heads": 16,
}  # fmt: skip
FAMILIES = {
    "mixtral": COMMON | {"num_local_experts": 8},
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 1024},
    "qwen3_moe": MOE,
    "glm4_moe": MOE | {"n_routed_experts": 8, "num_key_value_heads": 2, "head_dim": 128},
    "deepseek_v2": MLA,
    "deepseek_v3": MLA,
}
TEXT = "The keeper climbed the stairs to light the great lamp; each of the steps creaked under him, and far below the "
WIDTH = 4.0  # INT4 may lie this many times as far off as 16-bit arithmetic alone
LEAST = 0.02  # nats that are never too far
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from load_in_vllm import answer
folders, prompt, share = json.loads(sys.argv[3]), json.loads(sys.argv[4]), float(sys.argv[5])
try:
    answers = {folder: answer(folder, prompt, "bfloat16", gpu_memory_utilization=share) for folder in folders}
except Exception as error:
    import traceback
    traceback.print_exc()
    answers = {"error": f"{type(error).__name__}: {error}"}
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


def loaded(folders: list[Path], prompt: list[int], place: Path) -> dict:
    """What vLLM answers for each of these, in a process of its own."""
    out = place / "answers.json"
    out.unlink(missing_ok=True)
    done = subprocess.run(
        [
            sys.executable, "-c", CHILD, str(Path(__file__).parents[1] / "engine"), str(out),
            json.dumps([str(folder) for folder in folders]), json.dumps(prompt), os.environ.get("LATHE_SHARE", "0.2"),
        ],
        env=os.environ | ENGINE, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    found = json.loads(out.read_text()) if out.is_file() else {"error": f"status {done.returncode}"}
    if "error" in found:
        print(done.stdout[-1500:], done.stderr[-3500:], file=sys.stderr)
    return found


def distance(answer: dict, right: list[float]) -> float:
    """The mean of how far the prompt's log-probabilities lie apart, in nats."""
    apart = [abs(ours - theirs) for ours, theirs in zip(right, answer["given"], strict=True)]
    return sum(apart) / len(apart)


def compare(name: str, folders: list[Path], prompt: list[int], place: Path) -> str:
    """One line; folders are the packed one and, where there is one, the unquantized."""
    answers = loaded(folders, prompt, place)
    if "error" in answers:
        return f"{name:12} FAILED {answers['error'][:300]}"
    apart, spread = [], []
    for folder in folders:
        right, first = expected(folder, prompt)
        apart.append(distance(answers[str(folder)], right))
        spread.append(torch.tensor(right).std().item())
        firsts = answers[str(folder)]["tokens"][0], first
        print(name, folder.name, "next token", firsts, f"load {answers[str(folder)]['seconds']:.0f} s", flush=True)
    bound = max(LEAST, WIDTH * apart[-1]) if len(folders) > 1 else 5 * LEAST
    kernels = ", ".join(answers[str(folders[0])]["kernels"])
    beside = f"unquantized {apart[1]:.5f}" if len(folders) > 1 else ""
    verdict = "" if apart[0] <= bound else "FAILED "
    return f"{name:12} {verdict}INT4 {apart[0]:.5f} nats {beside} (values spread {spread[0]:.2f}) {kernels}"


def main(finished: list[Path]) -> int:
    lines = []
    prompt = byte_tokenizer()(TEXT)["input_ids"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as place:
        for folder in finished:
            lines.append(compare(folder.name, [folder], prompt, Path(place)))
        for family, settings in FAMILIES.items() if not finished else ():
            try:
                plain = write_family(Path(place) / f"{family}-plain", family, **settings)
                quantized(plain, Path(place) / family, "layered", device="cuda")
                lines.append(compare(family, [Path(place) / family, plain], prompt, Path(place)))
            except Exception as error:  # the others are still worth a look
                lines.append(f"{family:12} FAILED {type(error).__name__}: {error}")
            print(lines[-1], flush=True)
    print("\nhow far vLLM lies from our float32 reading of the same weights, mean over the prompt's tokens")
    print("\n".join(lines))
    print(torch.cuda.get_device_name(), *(f"{name} {version(name)}" for name in ("vllm", "torch", "transformers")))
    return int(any("FAILED" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main([Path(folder) for folder in sys.argv[1:]]))
