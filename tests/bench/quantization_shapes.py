"""Speed and memory of quantizing models of a given shape, with random weights of a realistic spread.

`python tests/bench/quantization_shapes.py qwen2-7b --starter FOLDER [--blocks 4] [--clocks]`. Calibrates with 128
samples of 512 tokens. Without `--blocks` the whole model is quantized; with it the time of all blocks is extrapolated
and said so. `--clocks` waits for the GPU after every step and says where the time goes, which costs some.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from workbench import recipe
from workbench.events import Note, Stage
from workbench.quant_events import Checked, ModuleDone, ModuleStarted, QualityMeasured
from workbench.quantization import calibration, pipeline
from workbench.words import Sentence

SHAPES = {
    "tiny": ("qwen2", 2, {
        "hidden_size": 256, "intermediate_size": 640, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 49152,
    }),
    "smollm2-135m": ("llama", 30, {
        "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
        "vocab_size": 49152,
    }),
    "qwen2-7b": ("qwen2", 28, {
        "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
        "vocab_size": 152064, "rms_norm_eps": 1e-6,
    }),
    "llama-70b": ("llama", 80, {
        "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
        "vocab_size": 128256,
    }),
}  # fmt: skip
SHARD_BYTES = 4 << 30
LIBRARIES = ("torch", "transformers", "compressed-tensors")


def write(folder: Path, shape: str, blocks: int | None, starter: Path, device: torch.device) -> int:
    """A checkpoint in bfloat16 with the starter's tokenizer; how many blocks it has."""
    family, layers, settings = SHAPES[shape]
    config = AutoConfig.for_model(
        family, num_hidden_layers=blocks or layers, max_position_embeddings=4096, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=2, pad_token_id=None, **settings,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    config.architectures, config.dtype = [type(model).__name__], "bfloat16"
    config.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(starter / name, folder)
    torch.manual_seed(0)
    waiting, size, shard = {}, 0, 0
    for name, parameter in model.named_parameters():
        waiting[name] = _values(name, parameter.shape, layers, device).to(torch.bfloat16).cpu()
        size += 2 * parameter.numel()
        if size > SHARD_BYTES:
            save_file(waiting, folder / f"model-{shard}.safetensors", metadata={"format": "pt"})
            waiting, size, shard = {}, 0, shard + 1
    save_file(waiting, folder / f"model-{shard}.safetensors", metadata={"format": "pt"})
    return layers


def _values(name: str, shape: torch.Size, layers: int, device: torch.device) -> torch.Tensor:
    """Rows and columns of different loudness, one column of a thousand far louder, tails heavier than a normal's."""
    if len(shape) == 1:
        if name.endswith("bias"):
            return 0.5 * torch.randn(shape, device=device)
        loud = torch.exp(0.3 * torch.randn(shape, device=device))
        return torch.where(torch.rand(shape, device=device) < 0.002, 6 * loud, loud)
    out, inputs = shape
    columns = torch.exp(0.4 * torch.randn(inputs, device=device))
    columns = torch.where(torch.rand(inputs, device=device) < 0.001, 8 * columns, columns)
    tails = torch.exp(0.3 * torch.randn(shape, device=device))
    weight = torch.randn(shape, device=device).mul_(tails).mul_(columns)
    weight.mul_(torch.exp(0.3 * torch.randn(out, 1, device=device)))
    if "embed" in name:
        return weight.mul_(0.02)
    into_stream = name.endswith(("o_proj.weight", "down_proj.weight"))
    return weight.mul_(inputs**-0.5 * (0.5 / (2 * layers) ** 0.5 if into_stream else 0.7))


def text_for(tokens: int, starter: Path, path: Path) -> None:
    """Our own calibration text, then the same documents with their words in other orders, until it is enough."""
    tokenizer, chance = AutoTokenizer.from_pretrained(str(starter)), random.Random(0)
    documents, found = [*calibration.own_text(), *calibration.held_text()], []
    have = 0
    while have < 1.05 * tokens:
        for document in documents:
            found.append(document)
            have += len(tokenizer(document)["input_ids"])
        documents = [" ".join(chance.sample(words := text.split(), len(words))) for text in documents]
    path.write_text("\n<|document|>\n".join(found), encoding="utf-8")


class Memory(threading.Thread):
    """The most private memory that this process had; mapped files, which the system takes back, are not in it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most = 0

    def run(self):
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith(("RssAnon", "RssShmem")):
                    kind, value = line.split(":")
                    if kind == "RssAnon":
                        self.most = max(self.most, int(value.split()[0]) << 10)
            time.sleep(0.1)


class Clocks:
    """Seconds spent in chosen functions themselves, without what those call that has a clock too."""

    def __init__(self):
        self.seconds, self.calls = defaultdict(float), defaultdict(int)
        self._inner = [0.0]

    def wrap(self, owner, name: str, label: str = "") -> None:
        inside = getattr(owner, name)
        label = label or f"{getattr(owner, '__name__', owner)}.{name}".removeprefix("workbench.quantization.")

        def timed(*args, **kwargs):
            _wait()
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return inside(*args, **kwargs)
            finally:
                _wait()
                spent = time.perf_counter() - began
                self.seconds[label] += spent - self._inner.pop()
                self._inner[-1] += spent
                self.calls[label] += 1

        timed.__name__ = name
        setattr(owner, name, property(timed) if isinstance(inside, property) else timed)

    def wrap_usual(self) -> None:
        """The parts of a run, wherever they are called from."""
        import workbench.quantization as package
        from workbench.quantization import (
            awq,
            blocks,
            checkpoint,
            gptq,
            grid,
            kept_blocks,
            layered,
            moments,
            packing,
            rounding,
            stats,
            turn,
            verify,
        )  # fmt: skip

        assert package
        for owner, names in (
            (blocks.Skeleton, ("load", "attend", "activate", "embed", "prove")),
            (moments.Moments, ("add", "scaled")),
            (awq, ("search_scale", "fold_norm", "fold_rows")),
            (gptq, ("round_columns", "_inverse_factor")),
            (rounding, ("search", "nearest", "rounded")),
            (packing, ("pack", "unpack")),
            (stats, ("spread", "counts")),
            (turn, ("nearest", "rounded", "output_error")),
            (turn.Turn, ("_report", "_keep_the_rest", "_add")),
            (grid.Grid, ("levels", "clipped")),
            (checkpoint.Checkpoint, ("add", "finish", "publish")),
            (verify, ("check",)),
            (layered, ()),
            (kept_blocks, ("save_file",)),
        ):
            for name in names:
                if hasattr(owner, name):
                    self.wrap(owner, name)
        self._wrap_transfers()

    def _wrap_transfers(self) -> None:
        """Every copy between host and GPU that is called `to` or `cpu`."""
        inside, cpu = torch.Tensor.to, torch.Tensor.cpu

        def where(tensor, args, kwargs):
            wanted = kwargs.get("device", args[0] if args else None)
            if isinstance(wanted, str | torch.device):
                return torch.device(wanted).type
            return tensor.device.type

        def timed(tensor, *args, **kwargs):
            to = where(tensor, args, kwargs)
            if to == tensor.device.type:
                return inside(tensor, *args, **kwargs)
            return self._timed(f"copy {tensor.device.type} to {to}", inside, tensor, *args, **kwargs)

        torch.Tensor.to = timed
        torch.Tensor.cpu = lambda tensor: timed(tensor, "cpu") if tensor.device.type != "cpu" else cpu(tensor)

    def _timed(self, label, inside, *args, **kwargs):
        _wait()
        began = time.perf_counter()
        result = inside(*args, **kwargs)
        _wait()
        spent = time.perf_counter() - began
        self.seconds[label] += spent
        self._inner[-1] += spent
        self.calls[label] += 1
        return result

    def table(self) -> str:
        rows = sorted(self.seconds.items(), key=lambda entry: -entry[1])
        return "\n".join(f"  {label:34} {seconds:8.2f} s {self.calls[label]:6} calls" for label, seconds in rows)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main(options: argparse.Namespace) -> int:
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    clocks, memory = Clocks(), Memory()
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as place:
        folder = Path(place)
        os.environ["LATHE_HOME"] = str(folder / "home")
        began = time.monotonic()
        layers = write(folder / "model", options.shape, options.blocks, options.starter, device)
        chosen = replace(recipe.load(options.recipe), calibration_file=str(folder / "text.txt"))
        chosen = replace(chosen, samples=options.samples or chosen.samples)
        text_for(chosen.samples * chosen.length, options.starter, folder / "text.txt")
        print(f"written in {time.monotonic() - began:.1f} s", flush=True)
        if options.clocks:
            clocks.wrap_usual()
        spec = {
            "model": str(folder / "model"), "output": str(options.keep or folder / "result"), "device": device.type,
            "recipe": recipe.to_dict(chosen), "held_tokens": options.held, "reuse": options.reuse, "replace": True,
        }  # fmt: skip
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        memory.start()
        stages, blocks, modules, lines = _run(spec, folder)
    count = len(blocks)
    each = (sum(blocks[1:]) / (count - 1)) if count > 1 else blocks[0]
    rest = sum(stages.values()) - sum(blocks)
    print(f"\n{options.shape}, {options.recipe}, {chosen.samples} × {chosen.length} tokens, reuse {options.reuse}")
    print("\n".join(lines))
    print("seconds of each block:", " ".join(f"{seconds:.2f}" for seconds in blocks))
    print("seconds and relative output error of a block's layers:")
    print(" ".join(f"{name} {done.seconds:.2f} {done.output_error:.5f}" for name, done in modules.items()))
    print("stages:", " · ".join(f"{name} {seconds:.1f} s" for name, seconds in stages.items()))
    if options.clocks:
        print(clocks.table())
    whole = f"{rest + sum(blocks):.1f} s in all"
    if options.blocks:
        whole += f"; extrapolated from {count} to {layers} blocks: {rest * layers / count + each * layers:.0f} s"
    print(f"{each:.2f} s per block after the first, {rest:.1f} s around them, {whole}")
    if device.type == "cuda":
        print(
            f"GPU peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GB used, "
            f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GB reserved"
        )
    print(
        f"host peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB resident with mapped files, "
        f"{memory.most / 2**30:.2f} GB of its own"
    )
    print(
        torch.cuda.get_device_name() if device.type == "cuda" else "CPU", *(f"{at} {version(at)}" for at in LIBRARIES)
    )
    return 0


def _run(spec: dict, folder: Path) -> tuple[dict[str, float], list[float], dict[str, ModuleDone], list[str]]:
    """Seconds of each stage and of each block, the layers of the second block, and what was said."""
    stages, blocks, modules, lines = {}, [], {}, []
    stage, since, block, block_since = "Starting", time.monotonic(), -1, 0.0
    for event in pipeline.run(spec, folder):
        now = time.monotonic()
        if isinstance(event, Stage):
            stages[stage] = stages.get(stage, 0.0) + now - since
            if stage == "Quantizing":
                blocks.append(now - block_since)
            stage, since, block_since = str(event.name), now, now
            if stage.startswith("Trying") and torch.cuda.is_available():
                # The answers take a share of what is free, whatever the card.
                lines.append(f"GPU peak until here {torch.cuda.max_memory_allocated() / 2**30:.2f} GB")
        elif isinstance(event, ModuleStarted) and event.block != block:
            if block >= 0:
                blocks.append(now - block_since)
                block_since = now
            block = event.block
        elif isinstance(event, ModuleDone):
            assert event.output_error < 1, event
            if event.block <= 1:
                modules[event.name.rpartition(".")[2]] = event
        elif isinstance(event, Note):
            lines.append(str(Sentence(event.message, event.values)))
        elif isinstance(event, QualityMeasured | Checked):
            lines.append(
                f"{event.name}: {Sentence(event.detail, event.values)}" if isinstance(event, Checked) else str(event)
            )
    stages[stage] = stages.get(stage, 0.0) + time.monotonic() - since
    return stages, blocks, modules, lines


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("shape", choices=SHAPES)
    given.add_argument("--starter", type=Path, required=True, help="a folder with a tokenizer")
    given.add_argument("--blocks", type=int, help="only so many; the rest is extrapolated")
    given.add_argument("--recipe", default="layered")
    given.add_argument("--samples", type=int, help="calibration samples of 512 tokens; as many as the recipe says")
    given.add_argument("--held", type=int, default=0, help="tokens to measure the quality on")
    given.add_argument("--device")
    given.add_argument("--keep", type=Path, help="where the result stays")
    given.add_argument("--no-reuse", dest="reuse", action="store_false", help="do not keep finished blocks")
    given.add_argument("--clocks", action="store_true", help="where the time goes")
    sys.exit(main(given.parse_args()))
