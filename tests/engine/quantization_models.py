"""Tiny random models of several families, with a tokenizer of one token per byte."""

from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from workbench import recipe
from workbench.quantization import pipeline
from workbench.recipe import PRESETS, Recipe

# What best does, on weights that AWQ has scaled: every step that there is.
SCALED = replace(
    PRESETS["best"],
    name="scaled",
    attention=replace(PRESETS["best"].attention, method="awq+gptq"),
    mlp=replace(PRESETS["best"].mlp, method="awq+gptq"),
)
TEXT = "The keeper climbed the stairs every evening to light the great lamp; each of the steps creaked. "


def write_model(
    folder: Path, family: str = "llama", dtype: torch.dtype = torch.bfloat16, change=None, **settings
) -> Path:
    """F-TINY: hidden 64, intermediate 128, 2 layers, 4 heads of 32 over 2 KV heads, vocab 256.

    `change` is called with the model before it is saved; biases and norms are random, not their initial 0 and 1.
    """
    torch.manual_seed(0)
    wanted = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 1024,
        "initializer_range": 0.15, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
    } | settings  # fmt: skip
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **wanted), dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
            elif "norm" in name:
                parameter.uniform_(0.3, 1.7)
        if change:
            change(model)
    model.to(dtype).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def quantized(model: Path, output: Path, chosen: str | Recipe = "layered", **spec) -> list:
    """Run the whole job on a little text of its own and return its events."""
    text = output.parent / "calibration text.txt"
    if not text.exists():
        text.write_text("\n<|document|>\n".join(TEXT * (number + 2) for number in range(6)), encoding="utf-8")
    chosen = recipe.PRESETS[chosen] if isinstance(chosen, str) else chosen
    if not chosen.calibration_file:
        chosen = replace(chosen, calibration_file=str(text))
    spec = {"model": str(model), "output": str(output), "recipe": recipe.to_dict(chosen), "held_tokens": 0} | spec
    return list(pipeline.run(spec, output.parent))
