"""Quantized checkpoints made elsewhere: recognised by what their files hold, described, and served or refused."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny

from workbench.catalog import quantized, schemes
from workbench.catalog.capacity import Device, capacity
from workbench.catalog.folder import inspect
from workbench.engine import command, formats
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError

METHODS = frozenset({"awq", "auto_awq", "gptq", "auto_gptq", "compressed-tensors", "fp8", "mxfp4", "modelopt", "inc"})
CPU = EngineFacts("/env/python", "0.32.0", "2.13.0", True, frozenset({"--quantization"}), True, None, METHODS)
GPU = replace(CPU, cpu=False)
WIDTHS = {"I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1}
OUT, IN = 64, 128
MODULE = "model.layers.0.self_attn.q_proj"

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm",
       "modules_to_not_convert": ["visual"]}  # fmt: skip
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False,
        "checkpoint_format": "gptq"}  # fmt: skip
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
       "llm_int8_skip_modules": ["lm_head"]}  # fmt: skip
INT8 = {"quant_method": "bitsandbytes", "load_in_8bit": True}


def weights(bits=4, group=32, symmetric=True, kind="int", strategy="group", **more):
    return {"num_bits": bits, "type": kind, "symmetric": symmetric, "strategy": strategy, "group_size": group} | more


def packed(*groups, **more):
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": named} | more


def group(of, inputs=None, targets=("Linear",), **more):
    return {"weights": of, "input_activations": inputs, "targets": list(targets)} | more


TOKENWISE = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
W4A16 = packed(group(weights(symmetric=False)), ignore=["lm_head"])
W8A8 = packed(group(weights(8, None, strategy="channel"), TOKENWISE), format="int-quantized")
W8A8_FLOAT = packed(
    group(weights(8, None, kind="float", strategy="channel"), TOKENWISE | {"type": "float"}), format="float-quantized"
)
MIXED = packed(
    group(weights(4, 32, False), targets=["re:.*self_attn.*"]),
    group(weights(4, 64), targets=["re:.*mlp.*"], format="pack-quantized"),
    group(weights(8, None, strategy="channel"), targets=["model.layers.0.mlp.down_proj"]),
)
NVFP4 = packed(group(weights(4, 16, kind="float", strategy="tensor_group")), format="nvfp4-pack-quantized")


def model(folder: Path, stored=None, tensors=None, files=(), key="quantization_config") -> Path:
    """A Llama of one linear layer whose header is written by hand; the values are zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config | ({key: stored} if stored else {})))
    for name, content in dict(files).items():
        (folder / name).write_text(json.dumps(content))
    header, at = {}, 0
    for name, (dtype, *shape) in (tensors or {f"{MODULE}.weight": ("BF16", OUT, IN)}).items():
        size = WIDTHS[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return folder


def told(folder: Path) -> str:
    return str(inspect(folder).quantization.description)


@pytest.mark.parametrize(
    ("stored", "description"),
    [
        (AWQ, "AWQ (gemm): 4-bit integers, group 128, with zero points. Kept plain: visual."),
        (GPTQ, "GPTQ: 4-bit integers, group 32, symmetric."),
        (
            GPTQ | {"desc_act": True, "checkpoint_format": "gptq_v2"},
            "GPTQ (gptq_v2): 4-bit integers, group 32, symmetric, with activation order.",
        ),
        (GPTQ | {"desc_act": True, "group_size": -1}, "GPTQ: 4-bit integers, one scale for each row, symmetric."),
        (
            GPTQ | {"dynamic": {"+:.*down_proj": {"bits": 8}, "-:.*gate": {}}},
            "GPTQ, layers differ: 4-bit integers, group 32, symmetric; 8-bit integers, group 32, symmetric "
            "(.*down_proj). Kept plain: .*gate.",
        ),
        (FP8, "FP8: 8-bit floats, one scale for each 128×128 block, activations in 8 bit."),
        (NF4, "bitsandbytes (nf4): 4-bit floats. Kept plain: lm_head."),
        (INT8, "bitsandbytes: 8-bit integers, one scale for each row, symmetric, activations in 8 bit."),
        (
            W4A16,
            "compressed-tensors (pack-quantized): 4-bit integers, group 32, with zero points. Kept plain: lm_head.",
        ),
        (
            W8A8,
            "compressed-tensors (int-quantized): 8-bit integers, one scale for each row, symmetric, "
            "activations in 8 bit.",
        ),
        (
            W8A8_FLOAT,
            "compressed-tensors (float-quantized): 8-bit floats, one scale for each row, activations in 8 bit.",
        ),
        (
            MIXED,
            "compressed-tensors (pack-quantized), layers differ: "
            "4-bit integers, group 32, with zero points (*self_attn*); "
            "4-bit integers, group 64, symmetric (*mlp*); "
            "8-bit integers, one scale for each row, symmetric (model.layers.0.mlp.down_proj).",
        ),
        (NVFP4, "compressed-tensors (nvfp4-pack-quantized): 4-bit floats, group 16."),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]},
         "MXFP4: 4-bit floats, group 32. Kept plain: model.embed_tokens."),
        ({"quant_method": "intel/auto-round", "bits": 4, "group_size": 128, "sym": True},
         "AutoRound: 4-bit integers, group 128, symmetric."),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
                                                             "exclude_modules": ["lm_head"]}},
         "ModelOpt (NVFP4): 4-bit floats, group 16, activations in 4 bit. Kept plain: lm_head."),
        ({"quant_method": "hqq", "nbits": 3}, "HQQ: 3-bit integers."),
        ({"quant_method": "newest"}, "newest: unknown width."),
    ],
)  # fmt: skip
def test_what_a_configuration_says(tmp_path, stored, description):
    assert told(model(tmp_path / "m", stored)) == description
    assert not inspect(tmp_path / "m").can_quantize  # H03


def test_the_first_form_of_compressed_tensors(tmp_path):
    old = {"quantization_config": W4A16 | {"quant_method": "sparseml"}, "sparsity_config": {"format": "dense"}}
    assert told(model(tmp_path / "m", old, key="compression_config")).startswith(
        "compressed-tensors (pack-quantized): 4-b"
    )


def test_the_sentence_follows_the_language(tmp_path, monkeypatch):
    from workbench import words

    found = inspect(model(tmp_path / "m", MIXED)).quantization.description
    monkeypatch.setattr(words, "_chosen", "zh_CN")
    assert "对称" in str(found) and "symmetric" not in str(found)


GPTQ_TENSORS = {
    f"{MODULE}.qweight": ("I32", IN // 8, OUT), f"{MODULE}.qzeros": ("I32", 4, OUT // 8),
    f"{MODULE}.scales": ("F16", 4, OUT), f"{MODULE}.g_idx": ("I32", IN),
}  # fmt: skip
AWQ_TENSORS = {
    f"{MODULE}.qweight": ("I32", IN, OUT // 8), f"{MODULE}.qzeros": ("I32", 4, OUT // 8),
    f"{MODULE}.scales": ("F16", 4, OUT),
}  # fmt: skip
NF4_TENSORS = {
    f"{MODULE}.weight": ("U8", OUT * IN // 2, 1), f"{MODULE}.weight.absmax": ("F32", OUT * IN // 64),
    f"{MODULE}.weight.quant_map": ("F32", 16), f"{MODULE}.weight.quant_state.bitsandbytes__nf4": ("U8", 80),
}  # fmt: skip
INT8_TENSORS = {f"{MODULE}.weight": ("I8", OUT, IN), f"{MODULE}.SCB": ("F32", OUT)}
FP8_TENSORS = {f"{MODULE}.weight": ("F8_E4M3", OUT, IN), f"{MODULE}.weight_scale_inv": ("F32", 1, 2)}


@pytest.mark.parametrize(
    ("tensors", "description"),
    [
        (GPTQ_TENSORS, "GPTQ: 4-bit integers, group 32."),
        (AWQ_TENSORS, "AWQ: 4-bit integers, group 32, with zero points."),
        (NF4_TENSORS, "bitsandbytes (nf4): 4-bit floats."),
        (INT8_TENSORS, "bitsandbytes: 8-bit integers, one scale for each row, symmetric, activations in 8 bit."),
        (FP8_TENSORS, "FP8: 8-bit floats, one scale for each 64×64 block."),
    ],
)
def test_without_a_configuration_the_tensors_tell(tmp_path, tensors, description):
    found = inspect(model(tmp_path / "m", tensors=tensors))
    assert str(found.quantization.description) == description
    assert not found.can_quantize
    assert "no file says" in str(formats.refusal(found.quantization, GPU).sentence)


@pytest.mark.parametrize("tensors", [GPTQ_TENSORS, AWQ_TENSORS, NF4_TENSORS, INT8_TENSORS, FP8_TENSORS])
def test_parameters_are_those_of_the_unpacked_model(tmp_path, tensors):
    assert inspect(model(tmp_path / "m", tensors=tensors)).parameters == OUT * IN


def test_plain_weights_are_not_taken_for_quantized(tmp_path):
    assert inspect(model(tmp_path / "m")).quantization is None


@pytest.mark.parametrize(
    ("name", "content", "method", "bits"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}, "gptq", 4),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"}, "awq", 4),
    ],
)
def test_an_older_tools_own_file(tmp_path, name, content, method, bits):
    found = inspect(model(tmp_path / "m", files={name: content})).quantization
    assert (found.method, found.bits, found.group_size, found.source) == (method, bits, 128, name)
    argv = command.build(Profile(tmp_path / "m"), 8000, "key", CPU).argv
    assert argv[argv.index("--quantization") + 1] == method  # vLLM does not look for such a file by itself
    assert "--quantization" not in command.build(Profile(model(tmp_path / "n", AWQ)), 8000, "key", CPU).argv


@pytest.mark.parametrize(
    ("stored", "facts", "reason"),
    [
        (AWQ, CPU, ""),
        (AWQ | {"bits": 8}, GPU, "4 bits only"),
        (GPTQ, CPU, ""),
        (GPTQ | {"bits": 8}, GPU, ""),
        (GPTQ | {"bits": 8}, CPU, "GPTQ weights of 4 bits only"),
        (GPTQ | {"bits": 8}, replace(CPU, amx=True), "GPTQ weights of 4 bits only"),
        (GPTQ | {"bits": 3}, GPU, "4 or 8 bits; these have 3"),
        (GPTQ | {"sym": False}, GPU, "zero points"),
        (GPTQ | {"group_size": 16}, GPU, "these have 16"),
        (GPTQ | {"desc_act": True}, GPU, "desc_act"),
        (GPTQ | {"desc_act": True, "group_size": -1}, GPU, ""),
        (GPTQ | {"desc_act": True}, replace(GPU, version="0.10.1"), ""),  # an older engine could still do that
        (FP8, GPU, ""),
        (FP8, CPU, "8-bit floats"),
        (FP8, replace(CPU, amx=True), ""),
        (NF4, CPU, "does not load weights quantized with bitsandbytes"),
        (NF4, replace(CPU, methods=METHODS | {"bitsandbytes"}), ""),
        (W4A16, CPU, ""),
        (packed(group(weights(8, 32))), CPU, ""),
        (packed(group(weights(2, 32))), CPU, ""),
        (packed(group(weights(3, 32))), CPU, ""),
        (packed(group(weights(5, 32))), CPU, "these have 5"),
        (packed(group(weights(3, 32))), GPU, ""),
        (packed(group(weights(4, 32, actorder="group"))), GPU, "desc_act"),
        (packed(group(weights(4, 32, actorder="static"))), GPU, ""),
        (MIXED, CPU, ""),
        (W8A8, CPU, ""),
        (W8A8_FLOAT, CPU, "8-bit floats"),
        (NVFP4, CPU, "4-bit floats"),
        (NVFP4, GPU, ""),
        ({"quant_method": "hqq", "nbits": 4}, GPU, "does not load weights quantized with HQQ"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, GPU, ""),
    ],
)
def test_what_the_engine_serves(tmp_path, stored, facts, reason):
    folder = model(tmp_path / "m", stored)
    refused = formats.refusal(inspect(folder).quantization, facts)
    assert bool(refused) == bool(reason)
    if not reason:
        formats.check(Profile(folder), facts)
        return
    assert reason in str(refused.sentence) and str(refused.hint)
    assert "0.32.0" in str(refused.sentence)
    with pytest.raises(WorkbenchError) as error:
        formats.check(Profile(folder), facts)
    assert str(error.value) == str(refused.sentence) and error.value.hint == str(refused.hint)


@pytest.mark.parametrize(("words", "served"), [(-(-IN // 10), False), (IN * 3 // 32, True)])
def test_three_bits_are_served_where_they_leave_no_gaps(tmp_path, words, served):
    """compressed-tensors packs ten values into a word up to 0.17 and runs on from 0.19, which is what vLLM counts."""
    folder = model(tmp_path / "m", packed(group(weights(3, 32)), group(weights(8, 32), targets=["re:.*mlp.*"])))
    values = {f"{MODULE}.weight_packed": np.zeros((OUT, words), np.int32),
              f"{MODULE}.weight_shape": np.array([OUT, IN], np.int64)}  # fmt: skip
    tiny.save(folder / "model.safetensors", values)
    for stored in (quantized.of_folder(folder), inspect(folder).quantization):
        refused = formats.refusal(stored, GPU)
        assert (refused is None) == served == (not stored.gaps)
        assert (formats.refusal(stored, CPU) is None) == served
    assert served or "these leave bits over" in str(refused.sentence)


def test_a_plugin_is_named_with_its_command(tmp_path):
    refused = formats.refusal(inspect(model(tmp_path / "m", NF4)).quantization, CPU)
    assert "/env/python -m pip install vllm-bnb-plugin" in str(refused.hint)


def test_gguf_is_told_by_its_types():
    found = quantized.Quantized("gguf", 4, None, None, "Q4_K + Q6_K + F32", source="m.gguf")
    assert str(found.description) == "GGUF (Q4_K + Q6_K + F32)."
    assert "GGUF" in str(formats.refusal(found, GPU).sentence)


@pytest.mark.parametrize(
    ("stored", "dtype"), [(AWQ, "bfloat16"), (GPTQ, "bfloat16"), (W4A16, "float32"), (None, "float32")]
)
def test_formats_of_16_bit_kernels_are_not_computed_in_float32_on_a_cpu(tmp_path, stored, dtype):
    folder = model(tmp_path / "m", stored)

    def chosen(facts, **profile):
        argv = command.build(Profile(folder, **profile), 8000, "key", facts).argv
        return argv[argv.index("--dtype") + 1]

    assert chosen(CPU) == dtype
    assert chosen(GPU) == "auto"
    assert chosen(CPU, dtype="float16") == "float16"
    cpu = Device("cpu", "cpu", 10**12, 10**12, None)
    assert capacity(inspect(folder), cpu, "INT4").value_bytes == (2 if dtype == "bfloat16" else 4)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"quantization_config": 4}', '{"quantization_config": {"bits": "x"}}']
)
def test_a_damaged_configuration_is_no_error_here(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    found = quantized.of_folder(tmp_path)
    assert found is None or found.bits is None


def test_the_command_line_says_what_the_engine_makes_of_it(tmp_path, monkeypatch, capsys):
    from workbench import cli_export

    async def known(python):
        return CPU

    monkeypatch.setattr(cli_export.facts, "ask", known)
    good, bad = (inspect(model(tmp_path / name, stored)) for name, stored in (("good", AWQ), ("bad", NF4)))
    assert cli_export.engine_of(good) == {"serves": True, "reason": None, "hint": None}
    assert "bitsandbytes" in cli_export.engine_of(bad)["reason"]
    assert cli_export.engine_of(inspect(model(tmp_path / "plain"))) is None
    cli_export.print_engine(good)
    cli_export.print_engine(bad)
    assert capsys.readouterr().out.startswith("The installed engine can serve it.\n✕ vLLM 0.32.0 does not load")


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (r"re:.*\.self_attn\.q_proj$", "*.self_attn.q_proj"),
        (r"re:.*\.(q|k)_proj$", r"re:.*\.(q|k)_proj$"),
        ("Linear", "Linear"),
    ],
)
def test_patterns_of_layers_are_shown_as_people_write_them(target, shown):
    assert schemes.Scheme(bits=4, targets=(target,)).layers == shown
