"""Tiny drafting heads with random weights for the Llama of tiny_models.write_plain, as their makers publish them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

HIDDEN, INTERMEDIATE, KV, VOCAB = 128, 192, 64, 320
LLAMA = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": VOCAB,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
    "dtype": "float32", "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip


def write_medusa(folder: Path, target: Path, heads: int = 3) -> Path:
    """Residual blocks, each with a language-model head; these are the target's own, so that some drafts are taken."""
    own = load_file(target / "model.safetensors")["lm_head.weight"].float()
    tensors = {}
    for head in range(heads):
        tensors[f"blocks.{head}.layers.0.weight"] = _matrix(HIDDEN, HIDDEN, seed=head) * 0.01
        tensors[f"lm_heads.{head}.weight"] = own.clone()
    config = {
        "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": HIDDEN, "vocab_size": VOCAB,
        "num_heads": heads, "num_hidden_layers": 1, "dtype": "float32",
    }  # fmt: skip
    return _write(folder, config, tensors)


def write_eagle(folder: Path) -> Path:
    """One layer over the embedding and the target's last state side by side; it shares both ends with the target."""
    tensors = {"fc.weight": _matrix(HIDDEN, 2 * HIDDEN), **_layer("layers.0", HIDDEN, first_norm=False)}
    return _write(folder, LLAMA | {"architectures": ["EagleLlamaForCausalLM"]}, tensors)


def write_eagle3(folder: Path, drafted: int = 256, layers: tuple[int, ...] = (1, 2, 3)) -> Path:
    """One layer fed from these of the target's layers; its own head knows the first `drafted` tokens only."""
    tensors = {
        "fc.weight": _matrix(HIDDEN, 3 * HIDDEN),
        **_layer("midlayer", 2 * HIDDEN),
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": _matrix(drafted, HIDDEN),
        "d2t": torch.zeros(drafted, dtype=torch.int64),
        "t2d": torch.arange(VOCAB) < drafted,
    }
    named = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": drafted}
    return _write(folder, LLAMA | named | {"eagle_aux_hidden_state_layer_ids": list(layers)}, tensors)


def write_with_mtp(folder: Path) -> Path:
    """A GLM-4 of two layers with experts, and behind them one for MTP: its last layer again, fed from both ends."""
    torch.manual_seed(0)
    config = Glm4MoeConfig(
        hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, moe_intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=VOCAB, max_position_embeddings=512,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, n_group=1,
        topk_group=1, initializer_range=0.15, bos_token_id=None, eos_token_id=1, pad_token_id=None,
    )  # fmt: skip
    Glm4MoeForCausalLM(config).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    last = {name: tensor for name, tensor in tensors.items() if ".layers.1." in name}
    tensors |= {name.replace(".layers.1.", ".layers.2."): tensor.clone() for name, tensor in last.items()}
    half = torch.eye(HIDDEN) / 2
    tensors |= {f"model.layers.2.{name}.weight": torch.ones(HIDDEN) for name in ("enorm", "hnorm", "shared_head.norm")}
    tensors["model.layers.2.eh_proj.weight"] = torch.cat([half, half], 1)
    tensors["model.layers.2.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    tensors["model.layers.2.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | {"num_nextn_predict_layers": 1}))
    return folder


def _layer(prefix: str, columns: int, first_norm: bool = True) -> dict[str, Tensor]:
    shapes = {
        "self_attn.q_proj": (HIDDEN, columns), "self_attn.k_proj": (KV, columns), "self_attn.v_proj": (KV, columns),
        "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN), "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }  # fmt: skip
    tensors = {
        f"{prefix}.{name}.weight": _matrix(*shape, seed=place) for place, (name, shape) in enumerate(shapes.items())
    }
    norms = ("input_layernorm", "post_attention_layernorm") if first_norm else ("post_attention_layernorm",)
    return tensors | {f"{prefix}.{name}.weight": torch.ones(HIDDEN) for name in norms}


def _matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.1


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
