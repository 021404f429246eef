"""A model for the tests of the Quantize page."""

import json
import struct
from pathlib import Path

from workbench.catalog.folder import Model, inspect

BLOCKS = 30
SHAPES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}


def small_model(place: Path) -> Model:
    """The starter's shapes as headers over a hole in a file: nothing reads the weights here."""
    folder = place / "small"
    folder.mkdir()
    shapes = {"model.embed_tokens.weight": (49152, 576), "model.norm.weight": (576,)}
    for block in range(BLOCKS):
        shapes |= {f"model.layers.{block}.{name}.weight": shape for name, shape in SHAPES.items()}
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": BLOCKS, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return inspect(folder)
