"""A draft that is a model of tiny_models with its added tokens under other numbers and more rows of padding."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROWS = 384
MOVED = {"<pad>": 330, "<end>": 0}


def write_moved(model: Path, folder: Path) -> Path:
    """Its two added tokens change their places, so that row 1 belongs to nobody; the rest keeps its numbers."""
    shutil.copytree(model, folder)
    words = json.loads((folder / "tokenizer.json").read_text())
    before = {token["content"]: token["id"] for token in words["added_tokens"]}
    for token in words["added_tokens"]:
        token["id"] = MOVED[token["content"]]
    words["model"]["vocab"] |= MOVED
    (folder / "tokenizer.json").write_text(json.dumps(words))
    tensors = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = torch.randn(ROWS, tensors[name].shape[1], generator=torch.Generator().manual_seed(1)) * 0.1
        rows = rows.to(tensors[name].dtype)
        rows[: len(tensors[name])] = tensors[name]
        for text, number in MOVED.items():
            rows[number] = tensors[name][before[text]]
        tensors[name] = rows
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": ROWS, "eos_token_id": MOVED["<end>"]}))
    return folder
