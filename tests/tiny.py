"""F-TINY on disk without torch: a Llama of random weights, two layers, with a byte-level toy tokenizer."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB, POSITIONS = 64, 128, 2, 4, 2, 32, 256, 128
SPECIAL = ("<unk>", "<s>", "</s>", "<|pad|>", "<|four|>", "<|stop|>", "<|six|>", "<|end|>")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
INDEX = "model.safetensors.index.json"


def write(
    folder: Path,
    *,
    dtype: str = "BF16",
    shards: int = 1,
    tied: bool = False,
    bias: bool = False,
    positions: int = POSITIONS,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    template: str | None = TEMPLATE,
    tokenizer: Mapping[str, Any] | None = None,
    edit: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
) -> Path:
    """Write the model; `edit` replaces tensors by name (float32), `config` and `tokenizer` replace fields."""
    folder.mkdir(parents=True, exist_ok=True)
    values = tensors(tied=tied, bias=bias, seed=seed) | dict(edit or {})
    if shards == 1:
        save(folder / "model.safetensors", values, dtype)
    else:
        _save_shards(folder, values, dtype, shards)
    _json(folder / "config.json", _config(dtype, tied, bias, positions) | dict(config or {}))
    if generation is not None:
        _json(folder / "generation_config.json", generation)
    _json(folder / "tokenizer.json", _tokenizer())
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": positions}
    _json(
        folder / "tokenizer_config.json", names | {"tokenizer_class": "PreTrainedTokenizerFast"} | dict(tokenizer or {})
    )
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def tensors(*, tied: bool = False, bias: bool = False, seed: int = 0) -> dict[str, np.ndarray]:
    """The weights in float32, in the order of the model."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return random.normal(0, 0.15, shape).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        for leaf, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            found[f"model.layers.{layer}.{leaf}.weight"] = matrix(rows, columns)
            if bias and leaf.startswith("self_attn"):
                found[f"model.layers.{layer}.{leaf}.bias"] = matrix(rows)
        for leaf in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{layer}.{leaf}.weight"] = 1 + matrix(HIDDEN)
    found["model.norm.weight"] = 1 + matrix(HIDDEN)
    if not tied:
        found["lm_head.weight"] = matrix(VOCAB, HIDDEN)
    return found


def save(path: Path, values: Mapping[str, np.ndarray], dtype: str = "BF16") -> None:
    """One safetensors file. Floating arrays are stored as `dtype`, whole numbers as they are."""
    header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, array in values.items():
        kind, data = _stored(array, dtype)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _stored(array: np.ndarray, dtype: str) -> tuple[str, bytes]:
    if array.dtype.kind != "f":
        return {"int32": "I32", "int64": "I64"}[array.dtype.name], array.tobytes()
    if dtype == "BF16":
        bits = array.astype(np.float32).view(np.uint32)
        return dtype, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return dtype, array.astype({"F16": np.float16, "F32": np.float32}[dtype]).tobytes()


def save_headers(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A safetensors file of BF16 tensors with a hole in place of their values: any size of model for planning."""
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def _save_shards(folder: Path, values: Mapping[str, np.ndarray], dtype: str, shards: int) -> None:
    index = {}
    for number, names in enumerate(np.array_split(list(values), shards), 1):
        file = f"model-{number:05}-of-{shards:05}.safetensors"
        save(folder / file, {name: values[name] for name in map(str, names)}, dtype)
        index |= dict.fromkeys(map(str, names), file)
    _json(folder / INDEX, {"metadata": {}, "weight_map": index})


def _config(dtype: str, tied: bool, bias: bool, positions: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": bias,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[dtype],
    }


def _tokenizer() -> dict[str, Any]:
    """248 bytes, so all of UTF-8 without those that never occur in it, after eight special tokens."""
    never = {0xC0, 0xC1, *range(0xFA, 0x100)}
    letters = [letter for byte, letter in sorted(_byte_letters().items()) if byte not in never]
    vocabulary: Sequence[str] = [*SPECIAL, *letters]
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text} | added for number, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: number for number, text in enumerate(vocabulary)},
            "merges": [],
        },
    }


def _byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def _json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
