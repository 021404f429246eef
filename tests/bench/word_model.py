"""A model of a given shape that weighs nothing on disk: for engines that make up their weights."""

import json
import struct
from math import prod
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workbench.measure.mixed_load import WORDS

# Qwen2-7B's sizes with a vocabulary of plain words, so that random weights write text as fast as any other.
LARGE = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 65536, "max_position_embeddings": 32768,
}  # fmt: skip
TINY = {
    "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 2048, "max_position_embeddings": 4096,
}  # fmt: skip


def write(folder: Path, shape: dict[str, int]) -> Path:
    """A Llama of this shape whose weights are a hole in its file; `--load-format dummy` does not read them.

    Each of its tokens is a word, so that whatever the weights choose is text. (A Qwen2 would bring its own tokenizer.)
    """
    folder.mkdir(parents=True)
    config = shape | {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": None, "eos_token_id": shape["vocab_size"] - 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    sizes = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (shape["vocab_size"], hidden))
    for number in range(shape["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        for name, out in {"q": hidden, "k": kv, "v": kv}.items():
            sizes[f"{layer}.self_attn.{name}_proj.weight"] = (out, hidden)
        sizes[f"{layer}.self_attn.o_proj.weight"] = (hidden, hidden)
        for name in ("gate", "up"):
            sizes[f"{layer}.mlp.{name}_proj.weight"] = (inner, hidden)
        sizes[f"{layer}.mlp.down_proj.weight"] = (hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            sizes[f"{layer}.{name}.weight"] = (hidden,)
    sizes["model.norm.weight"] = (hidden,)
    header, place = {}, 0
    for name, size in sizes.items():
        end = place + 2 * prod(size)
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": (place, end)}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + place)

    words = [*WORDS, "Tell", "a", "story", "about", *(f"{number}:" for number in range(200))]
    names = [*words, *(f"w{number}" for number in range(shape["vocab_size"] - len(words) - 1)), "<end>"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    told = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", chat_template=template)
    told.save_pretrained(folder)
    return folder
