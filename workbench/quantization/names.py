"""Names of tensors on disk where they differ from the names in the model's code."""

import re
from collections.abc import Iterable

from workbench.catalog.linears import ENCODER

_EXPERT = re.compile(r"(\bexperts\.\d+\.)w([123])\b")
_EXPERT_PARTS = {"1": "gate_proj", "2": "down_proj", "3": "up_proj"}
_FIRST = re.compile(r"^(.*?(?:^|\.)layers\.)0\.")


def in_code(name: str) -> str:
    """Mixtral's names inside a block, in the words that all other families use; others as they are."""
    name = _EXPERT.sub(lambda match: match[1] + _EXPERT_PARTS[match[2]], name)
    return name.replace("block_sparse_moe.", "mlp.", 1)


def block_lists(names: Iterable[str]) -> list[str]:
    """What the names of blocks begin with, such as "model.layers."; those of pictures and sound are left out."""
    found = (match[1] for name in names if (match := _FIRST.match(name)))
    return [prefix for prefix in dict.fromkeys(found) if not ENCODER.search(prefix)]
