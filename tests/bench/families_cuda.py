"""INT4 experts and multi-head latent attention in vLLM on one NVIDIA GPU, which no CPU can run.

`python tests/bench/families_cuda.py [FOLDER …] [--families mixtral deepseek_v2]`. Small random models of families with
experts or MLA are quantized by the layered recipe, loaded in vLLM in 16 bit, and each prompt token's log-probability is
compared with what our own float32 reading of the packed weights gives; the unquantized model beside it says what 16-bit
arithmetic alone costs. A FOLDER is a finished checkpoint that is loaded and compared as well. vLLM is imported once,
meanwhile the models are quantized; several engines run side by side, the quantized ones first, each with `--limit`
seconds, and each answer is printed as it comes. After `--until` seconds what still runs is ended and says where it
stood. Ends with status 1 when a model fails or lies further off than that.

`--device cpu` tries the script itself on the tests' tiny models, whose experts are kept: vLLM on a CPU takes no others.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, median, pstdev

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from family_models import LATENT, write_family
from quantization_models import byte_tokenizer, quantized

from workbench.quantization.blocks import Skeleton
from workbench.recipe import KEEP, PRESETS, with_rules

HERE = Path(__file__).parent
COMMON = {
    "hidden_size": 512, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "initializer_range": 0.05, "num_hidden_layers": 2,
}  # fmt: skip
MOE = COMMON | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
# The sizes of heads are those that vLLM's kernels for MLA take.
MLA = COMMON | {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
    "kv_lora_rank": 512, "q_lora_rank": 320, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "head_dim": 64, "num_attention_heads": 16, "num_key_value_heads": 16,
}  # fmt: skip
FAMILIES = {
    "mixtral": COMMON | {"num_local_experts": 8},
    "deepseek_v2": MLA | {"topk_method": "greedy", "scoring_func": "softmax"},
    "qwen3_moe": MOE,
    "deepseek_v3": MLA | {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
    # vLLM takes the hidden size over the heads for it, whatever else is said.
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 512, "head_dim": 64},
    "glm4_moe": MOE | {"n_routed_experts": 8},
}
TINY = {"deepseek_v2": LATENT, "deepseek_v3": LATENT}
WITHOUT_EXPERTS = with_rules(PRESETS["layered"], ("*.experts.*",), KEEP)
TEXT = "The keeper climbed the stairs to light the great lamp; each of the steps creaked under him, and far below the "
WIDTH = 4.0  # INT4 may lie this many times as far off as 16-bit arithmetic alone
LEAST = 0.02  # nats that are never too far
UNKNOWN = 0.1  # nats allowed where the unquantized model gave no answer
ENGINE = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    # What is compiled or tuned at the first call takes longer than all that is measured here.
    "TORCHDYNAMO_DISABLE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_MOE_USE_DEEP_GEMM": "0", "VLLM_USE_V2_MODEL_RUNNER": "0",
}  # fmt: skip
# A fixed cache: measuring what is free fails where another program gives memory back meanwhile. The run that finds the
# peak memory takes as many tokens as a step may have.
OPTIONS = {"kv_cache_memory_bytes": 1 << 28, "max_num_batched_tokens": 256, "max_num_seqs": 4}
ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "LATHE_ENGINE": "1"}
LAST_WORDS = 45  # lines of a log that are shown when something went wrong


@dataclass
class Engines:
    """The checkpoints that vLLM shall load, in the order in which they were given."""

    place: Path
    prompt: list[int]
    device: str
    side_by_side: int
    limit: float
    share: float
    waiting: list[Path] = field(default_factory=list)
    began: dict[Path, float] = field(default_factory=dict)
    answers: dict[Path, dict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        environment = os.environ | ENGINE | (ON_CPU if self.device == "cpu" else {})
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "forked_engines.py"), self.device], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=(self.place / "import.log").open("w"), stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def turn(self) -> None:
        """Start what there is room for and report what has come."""
        imported = "vLLM is imported" in (self.place / "import.log").read_text(errors="replace")
        for folder in [folder for folder in self.began if folder not in self.answers]:
            if not imported:
                self.began[folder] = time.monotonic()
            out = self._file(folder, "answer")
            if out.is_file():
                self._report(folder, json.loads(out.read_text()))
            elif self.process.poll() is not None:
                self._report(folder, {"error": "the process that imports vLLM has ended"})
            elif time.monotonic() - self.began[folder] > self.limit:
                self._report(folder, {"error": f"no answer in {self.limit:.0f} s"})
        while self.waiting and len(self.began) - len(self.answers) < self.side_by_side:
            folder = self.waiting.pop(0)
            self.began[folder] = time.monotonic()
            order = {
                "folder": str(folder), "prompt": self.prompt, "dtype": "bfloat16",
                "out": str(self._file(folder, "answer")), "log": str(self._file(folder, "log")),
                "options": {} if self.device == "cpu" else OPTIONS | {"gpu_memory_utilization": self.share},
            }  # fmt: skip
            try:
                self.process.stdin.write(json.dumps(order) + "\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                self._report(folder, {"error": "the process that imports vLLM has ended"})

    def end(self) -> None:
        """End every engine; those that gave no answer say where they stood."""
        for folder in [*self.began, *self.waiting]:
            if folder not in self.answers:
                self._report(folder, {"error": "the time is over" if folder in self.began else "not reached"})
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _file(self, folder: Path, kind: str) -> Path:
        return self.place / f"{folder.name}.{kind}"

    def _report(self, folder: Path, answer: dict) -> None:
        log = self._file(folder, "log")
        said = log.read_text(errors="replace").splitlines() if log.is_file() else []
        if "error" not in answer:
            try:
                right, first = expected(folder, self.prompt, self.device)
                apart = [abs(ours - theirs) for ours, theirs in zip(right, answer["given"], strict=True)]
                answer |= {"apart": mean(apart), "median": median(apart), "spread": pstdev(right), "first": first}
                print(
                    f"[{time.monotonic() - BEGAN:.0f} s] {folder.name}: {mean(apart):.5f} nats on the mean, "
                    f"{median(apart):.5f} median, {max(apart):.5f} most; values spread {pstdev(right):.2f}; next token "
                    f"{answer['tokens'][0]}, ours {first}; loaded in {answer['seconds']:.0f} s; "
                    + ", ".join(answer["kernels"])
                )
                chosen = {line[line.index("Using ") :] for line in said if "Using " in line and "ackend" in line}
                print("   ", "; ".join(sorted(chosen))[:400], flush=True)
            except Exception as error:
                answer = {"error": f"our own reading: {type(error).__name__}: {error}"}
        self.answers[folder] = answer
        if "error" in answer:
            print(f"[{time.monotonic() - BEGAN:.0f} s] {folder.name}: {answer['error'][:400]}")
            for line in said[-LAST_WORDS:] or self._file(Path("import"), "log").read_text().splitlines()[-LAST_WORDS:]:
                print("   |", line[:200])
            sys.stdout.flush()


@torch.no_grad()
def expected(folder: Path, prompt: list[int], device: str) -> tuple[list[float], int]:
    """Each prompt token's log-probability by our reading in float32, and the most likely next token."""
    skeleton = Skeleton(folder, torch.device(device))
    skeleton.prove()
    hidden = skeleton.embed([torch.tensor([prompt])])[0].to(device)
    for index in range(len(skeleton)):
        hidden = skeleton.forward(skeleton.load(index), hidden)
    norm, head = skeleton.last()
    logits = skeleton.logits(norm(hidden) @ head.T).log_softmax(-1)[0]
    following = torch.tensor(prompt)[1:, None].to(device)
    return logits[:-1].gather(1, following)[:, 0].tolist(), int(logits[-1].argmax())


def verdict(name: str, packed: dict, plain: dict | None) -> str:
    """One line of the table."""
    if "error" in packed:
        return f"{name:12} FAILED {packed['error'][:300]}"
    known = plain is not None and "error" not in plain
    bound = max(LEAST, WIDTH * plain["apart"]) if known else UNKNOWN
    beside = f"unquantized {plain['apart']:.5f}" if known else "without the unquantized beside it"
    return (
        f"{name:12} {'' if packed['apart'] <= bound else 'FAILED '}INT4 {packed['apart']:.5f} nats, median "
        f"{packed['median']:.5f}; {beside} (values spread {packed['spread']:.2f}) {', '.join(packed['kernels'])}"
    )


def main(given: argparse.Namespace) -> int:
    prompt, failed, pairs = byte_tokenizer()(TEXT)["input_ids"], [], {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as folder:
        place = Path(folder)
        engines = Engines(place, prompt, given.device, given.side_by_side, given.limit, given.share)
        try:
            engines.waiting += given.folders
            for family in given.families:
                plain, packed = place / f"{family}-plain", place / family
                on_gpu = given.device == "cuda"
                sizes = FAMILIES[family] if on_gpu else TINY.get(family, {})
                chosen = PRESETS["layered"] if on_gpu else WITHOUT_EXPERTS
                began = time.monotonic()
                try:
                    quantized(write_family(plain, family, **sizes), packed, chosen, device=given.device)
                except Exception as error:  # the others are still worth a look
                    failed.append(f"{family:12} FAILED {type(error).__name__}: {error}")
                    print(failed[-1], flush=True)
                    continue
                print(f"{family}: quantized in {time.monotonic() - began:.1f} s", flush=True)
                pairs[packed] = plain
                engines.waiting.append(packed)
                engines.turn()
            engines.waiting += pairs.values()
            while len(engines.answers) < len(given.folders) + 2 * len(pairs):
                if time.monotonic() - BEGAN > given.until:
                    break
                engines.turn()
                time.sleep(0.5)
        finally:
            engines.end()
        rows = [verdict(folder.name, engines.answers[folder], None) for folder in given.folders]
        rows += [
            verdict(packed.name, engines.answers[packed], engines.answers[plain]) for packed, plain in pairs.items()
        ]
    print("\nhow far vLLM lies from our float32 reading of the same weights, mean over the prompt's tokens")
    print("\n".join(rows + failed))
    print(
        torch.cuda.get_device_name() if given.device == "cuda" else "CPU",
        *map(numbered, ("vllm", "torch", "transformers")),
    )
    return int(any("FAILED" in row for row in rows + failed))


def numbered(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name}-cpu {version(f'{name}-cpu')}"


BEGAN = time.monotonic()
if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folders", nargs="*", type=Path)
    options.add_argument("--families", nargs="*", default=list(FAMILIES), choices=FAMILIES)
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--share", type=float, default=0.05, help="of the GPU's memory that each engine may take")
    options.add_argument("--side-by-side", type=int, default=6)
    options.add_argument("--limit", type=float, default=200, help="seconds for each engine once vLLM is imported")
    options.add_argument("--until", type=float, default=280, help="seconds for all")
    sys.exit(main(options.parse_args()))
