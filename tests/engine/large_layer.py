"""One block with layers as wide as a large model's and statistics of its inputs, for timing what-if answers."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from workbench import moments_kept
from workbench.quantization.gathering import write
from workbench.recipe import Recipe

ROLES = ("q", "k", "v", "o", "gate", "up", "down")
ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"


def write_layer(folder: Path, size: int, recipe: Recipe, roles: Sequence[str] = ROLES) -> Path:
    """A Llama's block, or some of its layers: q, o, gate, up and down are [size, size], k and v a quarter of that,
    with heavy tails and loud inputs. The statistics for `recipe` are put into the home folder's cache."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    heads = size // 128
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size,
              "intermediate_size": size, "num_hidden_layers": 1, "num_attention_heads": heads,
              "num_key_value_heads": max(1, heads // 4), "head_dim": 128, "vocab_size": 256}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    narrow = 128 * max(1, heads // 4)
    rows = {_name(role): narrow if role in "kv" else size for role in roles}
    tensors = {f"{name}.weight": _heavy(count, size).to(torch.bfloat16) for name, count in rows.items()}
    norms = (f"model.layers.0.{name}_layernorm.weight" for name in ("input", "post_attention"))
    tensors |= dict.fromkeys((*norms, "model.norm.weight"), torch.ones(size, dtype=torch.bfloat16))
    tensors["model.embed_tokens.weight"] = tensors["lm_head.weight"] = torch.zeros(256, size, dtype=torch.bfloat16)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    owners = {_name(role): _name({"k": "q", "v": "q", "up": "gate"}.get(role, role)) for role in roles}
    place = moments_kept.folder_of(folder, recipe)
    place.mkdir(parents=True)
    shared = torch.randn(size, 8)  # inputs of real models move together
    H = torch.diag(torch.randn(size).mul(2.4).exp()) + shared @ shared.T
    about = {"owners": json.dumps(owners), "tokens": json.dumps(dict.fromkeys(set(owners.values()), 16_384))}
    write(moments_kept.block_file(place, 0), {name: H.clone() for name in set(owners.values())}, about)
    return folder


def _name(role: str) -> str:
    return f"{ATTENTION if role in 'qkvo' else MLP}.{role}_proj"


def _heavy(rows: int, columns: int) -> torch.Tensor:
    """Tails heavier than a normal distribution's, as weights have them."""
    return torch.randn(rows, columns) * torch.randn(rows, columns).abs().sqrt() / 50
