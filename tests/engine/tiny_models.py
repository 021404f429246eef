"""Tiny random Llamas on disk, plain and packed, small enough to load into real vLLM in a few seconds.

Packing goes through compressed-tensors itself, not through our own code, so that both can be held against it.
"""

import json
import re
from pathlib import Path

import torch
from compressed_tensors.compressors import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ATTENTION = r"re:.*self_attn\.(q|k|v|o)_proj$"
MLP = r"re:.*mlp\.(gate|up|down)_proj$"
TEXT = "The keeper climbed the spiral stairs every evening to light the great lamp, and every step creaked."
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant: "


def write_plain(folder: Path, *, layers: int = 2, bias: bool = False, seed: int = 0, tokenizer: bool = False) -> Path:
    """A Llama of hidden size 128, 4 heads of 32 over 2 key/value heads (CPU attention takes no head of 16)."""
    folder.mkdir(parents=True)
    words = toy_tokenizer() if tokenizer else None
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=320,
        max_position_embeddings=512,
        attention_bias=bias,
        initializer_range=0.15,  # the usual 0.02 gives logits so flat that a wrong weight would hardly show
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    if bias:
        for name, parameter in model.named_parameters():
            if name.endswith("proj.bias"):
                torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    if words:
        words.save_pretrained(folder)
    return folder


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and a few merges: every text can be written with it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<pad>", "<end>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", chat_template=TEMPLATE)


def write_packed(
    plain: Path, folder: Path, groups: dict[str, QuantizationArgs], ignore: tuple[str, ...] = ()
) -> LlamaForCausalLM:
    """Pack `plain` into `folder` by plain rounding; return the float32 model that the packed weights stand for.

    `groups` maps a pattern of compressed-tensors (ATTENTION, MLP) to how its linears are stored.
    """
    folder.mkdir(parents=True)
    model = LlamaForCausalLM.from_pretrained(plain, dtype=torch.float32)
    stored = load_file(plain / "model.safetensors")
    for name, module in model.named_modules():
        args = next((args for pattern, args in groups.items() if _matches(pattern, name)), None)
        if args is None or name in ignore:
            continue
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        state = _pack(stored.pop(f"{name}.weight").float(), scheme)
        stored |= {f"{name}.{part}": tensor.contiguous() for part, tensor in state.items()}
        module.weight.data = PackedQuantizationCompressor.decompress(state, scheme)["weight"].float()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = QuantizationConfig(
        config_groups={
            f"group_{index}": QuantizationScheme(targets=[pattern], weights=args)
            for index, (pattern, args) in enumerate(groups.items())
        },
        format="pack-quantized",
        quantization_status="compressed",
        ignore=["lm_head", *ignore],
    ).model_dump(exclude=["quant_method"], mode="json") | {"quant_method": "compressed-tensors"}
    (folder / "config.json").write_text(json.dumps(config))
    for part in plain.iterdir():
        if part.name not in ("config.json", "model.safetensors"):
            (folder / part.name).write_bytes(part.read_bytes())
    return model.eval()


def _pack(weight: torch.Tensor, scheme: QuantizationScheme) -> dict[str, torch.Tensor]:
    """[out, in] -> the tensors of one linear in pack-quantized, rounded to the nearest level.

    Every other row of a symmetric one has a negative scale, as Lathe gives it where a group reaches farther up.
    """
    args = scheme.weights
    groups = weight.unflatten(1, (-1, args.group_size)) if args.group_size else weight.unsqueeze(1)
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    if args.symmetric:
        scale[::2] *= -1
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    return PackedQuantizationCompressor.compress(state, scheme)


def _matches(pattern: str, name: str) -> bool:
    return re.match(pattern.removeprefix("re:"), name) is not None
