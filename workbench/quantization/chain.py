"""What a finished block depends on, as a chain of hashes: model, text, program and all blocks before it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch

from workbench.plan import Planned
from workbench.quantization import precision
from workbench.quantization.calibration import Sequences


def root(model: Path, sequences: Sequences | None, stored: torch.dtype, device: torch.device, targets: str) -> str:
    """The part that all blocks of a run share. Weights go by name, size and time; the text by its tokens."""
    files = [
        (file.name, stat.st_size, stat.st_mtime_ns)
        for file in sorted(model.glob("*.safetensors"))
        for stat in [file.stat()]
    ]
    config = (model / "config.json").read_text(encoding="utf-8")
    text = hashlib.sha256(repr(sequences.pieces if sequences else ()).encode()).hexdigest()
    kind = device.type, precision.multiplies_bfloat16()
    return _hash(files, config, text, str(stored), kind, targets, torch.__version__, _program())


def following(before: str, planned: Mapping[str, Planned]) -> str:
    """The hash after one more block, quantized as `planned` says."""
    return _hash(before, sorted((entry.linear.name, asdict(entry.choice)) for entry in planned.values()))


def links(begin: str, blocks: Iterable[Mapping[str, Planned]]) -> list[str]:
    """The hash after each of these blocks, in order."""
    found = []
    for planned in blocks:
        begin = following(begin, planned)
        found.append(begin)
    return found


@cache
def _program() -> str:
    """Every line of this package: what an older algorithm made is not taken for what the present one would make."""
    return _hash([file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.py"))])


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
