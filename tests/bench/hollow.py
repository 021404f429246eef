"""Checkpoints to measure engines with: Qwen2-7B's shape as headers over holes, and a starter's first layers."""

import json
import re
import shutil
from pathlib import Path

SEVEN_B = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 151643, "eos_token_id": 151643,
}  # fmt: skip
TINY = SEVEN_B | {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
PACKED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
    "ignore": ["lm_head"], "kv_cache_scheme": None,
    "config_groups": {"group_0": {
        "targets": ["Linear"], "input_activations": None, "output_activations": None,
        "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128},
    }},
}  # fmt: skip
GROUP = 128


def write_shape(folder: Path, starter: Path, config: dict, packed: bool) -> Path:
    """A checkpoint of this shape whose tensors are holes in its file; the starter's tokenizer with further words."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("BF16", (vocab, hidden)), "lm_head.weight": ("BF16", (vocab, hidden)),
        "model.norm.weight": ("BF16", (hidden,)),
    }  # fmt: skip
    linears = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = ("BF16", (hidden,))
        for name, (rows, columns) in linears.items():
            if name[-6] in "qkv":
                tensors[f"{at}{name}.bias"] = ("BF16", (rows,))
            if packed:
                tensors[f"{at}{name}.weight_packed"] = ("I32", (rows, columns // 8))
                tensors[f"{at}{name}.weight_scale"] = ("BF16", (rows, columns // GROUP))
                tensors[f"{at}{name}.weight_shape"] = ("I64", (2,))
            else:
                tensors[f"{at}{name}.weight"] = ("BF16", (rows, columns))
    header, end, sides = {"__metadata__": {"format": "pt"}}, 0, {}
    for name, (kind, shape) in tensors.items():
        size = {"BF16": 2, "I32": 4, "I64": 8}[kind]
        for length in shape:
            size *= length
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        if kind == "I64":  # the one tensor that is read before the weights are loaded
            sides[end] = linears[name.split(".", 3)[3].rpartition(".")[0]]
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        for start, values in sides.items():
            file.seek(8 + len(text) + start)
            file.write(b"".join(value.to_bytes(8, "little") for value in values))
    (folder / "config.json").write_text(json.dumps(config | ({"quantization_config": PACKED} if packed else {})))
    tokenizer = json.loads((starter / "tokenizer.json").read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    words |= {f"x{number}": number for number in range(max(words.values()) + 1, vocab)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        if (starter / name).exists():
            shutil.copy(starter / name, folder)
    return folder


def cut(starter: Path, folder: Path, layers: int) -> Path:
    """The starter's first layers as a model of its own: a draft that nobody trained."""
    from safetensors.torch import load_file, save_file

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(starter, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    kept = {
        name: tensor
        for file in starter.glob("*.safetensors")
        for name, tensor in load_file(file).items()
        if not (found := re.search(r"\.layers\.(\d+)\.", name)) or int(found[1]) < layers
    }
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}), encoding="utf-8")
    return folder
