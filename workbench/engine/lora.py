"""LoRA adapters on disk, as the engine is told of them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench import json_file
from workbench.engine.profile import Adapter
from workbench.errors import WorkbenchError

CONFIG = "adapter_config.json"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM reserves memory for


def rank_of(folder: Path) -> int:
    """The rank that an adapter's own config names; a sentence where the folder holds no LoRA adapter."""
    try:
        config = json_file.read(folder / CONFIG)
        ranks = [config["r"], *config.get("rank_pattern", {}).values()]
        if config.get("peft_type", "LORA") != "LORA" or not all(type(rank) is int and rank > 0 for rank in ranks):
            raise ValueError(config)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise WorkbenchError(
            "{folder} holds no LoRA adapter.", "Choose a folder with adapter_config.json, as PEFT writes it.",
            folder=str(folder),
        ) from error  # fmt: skip
    return max(ranks)


def read_adapter(text: str) -> Adapter:
    """NAME=FOLDER, as it is typed."""
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise WorkbenchError("{text} names no LoRA adapter.", "Write it as name=folder.", text=text[:60])
    return Adapter(name, Path(folder).expanduser())


def arguments(adapters: Sequence[Adapter], flag: str) -> Iterator[tuple[str, ...]]:
    """The flags that load these adapters with the model, and reserve no more memory than they need."""
    highest = max(rank_of(adapter.folder) for adapter in adapters)
    if highest > RANKS[-1]:
        raise WorkbenchError(
            "A LoRA adapter of rank {rank} cannot be served.", "vLLM takes ranks up to {most}.",
            rank=highest, most=RANKS[-1],
        )  # fmt: skip
    yield ("--enable-lora",)
    yield "--max-loras", str(len(adapters))
    yield "--max-lora-rank", str(next(rank for rank in RANKS if rank >= highest))
    yield flag, *(json.dumps({"name": each.name, "path": str(each.folder)}, ensure_ascii=False) for each in adapters)
