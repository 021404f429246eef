"""Model folders: what is read from configurations and headers, and what is said of damaged ones."""

import hashlib
import json
import socket
import struct
import time

import numpy as np
import pytest
import tiny as maker

from workbench.catalog import folder as catalog
from workbench.catalog.folder import Unreadable, inspect, scan
from workbench.errors import WorkbenchError


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def codes(model) -> list[str]:
    return [problem.code for problem in model.problems]


def configure(path, **fields):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))


def gguf(path, tensors=2):
    """A GGUF file of one block and a vocabulary, written by the format's own description."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.block_count") + struct.pack("<II", 4, 30),
        text("llama.embedding_length") + struct.pack("<II", 4, 576),
        text("llama.attention.head_count") + struct.pack("<II", 4, 9),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("bc") + text(""),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0, 0, 0),
        text("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, 2),
    ]
    infos = [
        text("blk.0.attn_q.weight") + struct.pack("<I2QIQ", 2, 576, 576, 3, 0),
        text("output.weight") + struct.pack("<I2QIQ", 2, 576, 100, 1, 4096),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs))
    path.write_bytes(head + b"".join(pairs) + b"".join(infos[:tensors]))
    return path.parent


def test_figures_of_a_whole_model(tiny):
    model = inspect(tiny)
    assert (model.architecture, model.model_type, model.format) == ("LlamaForCausalLM", "llama", "safetensors")
    assert (model.layers, model.hidden, model.intermediate) == (2, 64, 128)
    assert (model.heads, model.kv_heads, model.head_dim) == (4, 2, 32)
    assert (model.vocab, model.context, model.dtype) == (256, 128, "BF16")
    assert model.parameters == sum(array.size for array in maker.tensors().values())
    assert model.weight_bytes == 2 * model.parameters
    assert not model.tied and not model.attention_bias and model.has_template
    assert model.eos_ids == (2,)
    assert model.problems == () and model.can_quantize and model.can_serve


def test_linears_have_role_shape_and_block(tiny):
    linears = {linear.name: linear for linear in inspect(tiny).linears}
    assert len(linears) == 14
    down = linears["model.layers.1.mlp.down_proj"]
    assert (down.block, down.role, down.out_features, down.in_features, down.bias) == (1, "down", 64, 128, False)
    assert [linear.role for linear in linears.values()] == ["q", "k", "v", "o", "gate", "up", "down"] * 2


def test_biases_and_tied_embeddings(write_tiny):
    model = inspect(write_tiny(tied=True, bias=True))
    assert model.tied and model.attention_bias
    assert all(linear.bias == linear.in_attention for linear in model.linears)
    assert model.parameters == sum(array.size for array in maker.tensors(tied=True, bias=True).values())


def test_a_stored_copy_of_a_tied_head_counts_once(write_tiny):
    whole = inspect(write_tiny("one", tied=True)).parameters
    assert inspect(write_tiny("two", config={"tie_word_embeddings": True})).parameters == whole


def test_nested_configuration_of_a_multimodal_model(tiny):
    config = json.loads((tiny / "config.json").read_text())
    inner = {name: config.pop(name) for name in ("hidden_size", "num_attention_heads", "head_dim", "vocab_size")}
    (tiny / "config.json").write_text(json.dumps(config | {"text_config": inner}))
    model = inspect(tiny)
    assert (model.hidden, model.heads, model.head_dim, model.vocab) == (64, 4, 32, 256)


def test_linears_of_an_unknown_architecture(tmp_path):
    weights = {
        "core.embed.weight": np.zeros((10, 32), np.float32),
        "core.layers.0.mixer.dense_in.weight": np.zeros((48, 32), np.float32),
        "core.layers.0.mixer.q_proj.weight": np.zeros((16, 32), np.float32),
        "core.layers.0.norm.weight": np.zeros(32, np.float32),
        "core.layers.0.conv.weight": np.zeros((32, 1, 4), np.float32),
        "core.layers.0.mlp.gate.weight": np.zeros((8, 32), np.float32),
        "vision_tower.layers.0.q_proj.weight": np.zeros((16, 32), np.float32),
    }
    maker.save(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text('{"architectures": ["StrangeForCausalLM"]}')
    model = inspect(tmp_path)
    assert {linear.name: linear.role for linear in model.linears} == {
        "core.layers.0.mixer.q_proj": "q",
        "core.layers.0.mixer.dense_in": "other",
    }
    assert model.layers == 1 and model.heads is None


@pytest.mark.parametrize(
    ("extra", "usual"),
    [
        ("model.layers.1.self_attn.q_norm", True),
        ("model.layers.1.pre_feedforward_layernorm", True),
        ("model.layers.1.mlp.experts.0.up_proj", True),
        ("model.layers.1.mlp.experts.gate_up", False),
        ("model.layers.1.mamba.in_proj", False),
        ("vision_tower.layers.1.mlp.fc1", True),
    ],
)
def test_blocks_that_the_quantization_does_not_know(write_tiny, extra, usual):
    path = write_tiny()
    maker.save(path / "model.safetensors", maker.tensors() | {f"{extra}.weight": np.zeros((4, 4), np.float32)})
    model = inspect(path)
    assert model.can_quantize == usual and codes(model) == ([] if usual else ["unusual_blocks"])
    assert model.can_serve


def test_a_missing_shard_is_named_with_its_tensors(write_tiny):  # H01
    path = write_tiny(shards=9)
    gone = "model-00002-of-00009.safetensors"
    held = list(json.loads((path / maker.INDEX).read_text())["weight_map"].values()).count(gone)
    (path / gone).unlink()
    start = time.perf_counter()
    model = inspect(path)
    assert time.perf_counter() - start < 1
    assert [(gap.file, gap.tensors) for gap in model.missing] == [(gone, held)]
    assert not model.can_quantize and not model.can_serve
    assert gone in str(model.problems[0].sentence) and str(held) in str(model.problems[0].sentence)


def test_a_missing_shard_without_an_index(write_tiny):
    path = write_tiny(shards=3)
    (path / maker.INDEX).unlink()
    (path / "model-00003-of-00003.safetensors").unlink()
    assert [gap.file for gap in inspect(path).missing] == ["model-00003-of-00003.safetensors"]


def test_a_tensor_that_only_the_index_knows(write_tiny):
    path = write_tiny(shards=3)
    index = json.loads((path / maker.INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00003.safetensors"
    (path / maker.INDEX).write_text(json.dumps(index))
    assert codes(inspect(path)) == ["missing_tensors"]


def test_an_index_that_points_out_of_the_folder_is_not_followed(write_tiny):
    path = write_tiny(shards=3)
    index = json.loads((path / maker.INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "../../secret.safetensors"
    (path / maker.INDEX).write_text(json.dumps(index))
    model = inspect(path)
    assert "damaged_index" in codes(model) and not model.can_quantize


@pytest.mark.parametrize("cut", [0, 5, 8, 200, -1])
def test_a_cut_file_is_a_sentence(tiny, cut):
    file = tiny / "model.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    model = inspect(tiny)
    assert codes(model)[0] == "damaged_file" and "model.safetensors" in str(model.problems[0].sentence)
    assert not model.can_serve and not model.can_quantize


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{", b'{"a": 1}', b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', b"[" * 100_000,
     b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}', b"\xff\xfe"],
)  # fmt: skip
def test_a_damaged_header_is_a_sentence(tiny, header):
    (tiny / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    assert codes(inspect(tiny))[0] == "damaged_file"


def test_a_huge_header_length_is_not_allocated(tiny):
    (tiny / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    assert codes(inspect(tiny))[0] == "damaged_file"


@pytest.mark.parametrize("content", ["{", "[]", "null", '"text"'])
def test_a_damaged_config_is_an_error_with_a_next_step(tiny, content):
    (tiny / "config.json").write_text(content)
    with pytest.raises(WorkbenchError, match=r"config\.json") as caught:
        inspect(tiny)
    assert caught.value.hint


def test_gguf_without_config(tmp_path):  # H02 a, b
    for name in ("a/model.gguf", "b/model.bin"):
        model = inspect(gguf(tmp_path / name))
        assert (model.format, model.architecture, model.dtype) == ("gguf", "llama", "Q4_1")
        assert (model.layers, model.hidden, model.vocab, model.eos_ids) == (30, 576, 3, (2,))
        assert model.parameters == 576 * 676
        assert not model.can_quantize and not model.can_serve
        assert "safetensors" in str(model.problems[0].hint)


def test_gguf_beside_safetensors(tiny):  # H02 c
    gguf(tiny / "old.gguf")
    model = inspect(tiny)
    assert model.format == "safetensors" and model.can_quantize
    assert "old.gguf" in str(model.problems[0].sentence)


def test_a_cut_gguf_is_a_sentence(tmp_path):
    path = gguf(tmp_path / "m" / "model.gguf")
    whole = (path / "model.gguf").read_bytes()
    for size in (4, 10, 40, len(whole) - 3):
        (path / "model.gguf").write_bytes(whole[:size])
        with pytest.raises(WorkbenchError, match=r"model\.gguf"):
            inspect(path)


def test_pickled_weights_are_not_opened(tiny):
    (tiny / "model.safetensors").unlink()
    (tiny / "pytorch_model.bin").write_bytes(b"\x80\x04pickle")
    with pytest.raises(WorkbenchError, match="pickled"):
        inspect(tiny)


def test_an_awq_model_is_described_and_refused(write_tiny):  # H03
    packed = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
    path = write_tiny(config={"quantization_config": packed})
    before = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in path.iterdir()}
    model = inspect(path)
    found = model.quantization
    assert (found.method, found.bits, found.group_size, found.symmetric, found.format) == ("awq", 4, 32, False, "gemm")
    assert "4-bit AWQ, group 32" in str(model.problems[0].sentence)
    assert not model.can_quantize and model.can_serve
    assert before == {file.name: hashlib.sha256(file.read_bytes()).digest() for file in path.iterdir()}


def test_a_layered_checkpoint_is_described(write_tiny):
    def group(size, symmetric):
        weights = {"num_bits": 4, "group_size": size, "symmetric": symmetric, "type": "int", "strategy": "group"}
        return {"targets": ["Linear"], "weights": weights}

    groups = {"group_0": group(32, False), "group_1": group(64, True)}
    stored = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    path = write_tiny(config={"quantization_config": stored})
    values = maker.tensors()
    name = "model.layers.0.self_attn.q_proj"
    values.pop(f"{name}.weight")
    values[f"{name}.weight_packed"] = np.zeros((128, 8), np.int32)
    values[f"{name}.weight_scale"] = np.zeros((128, 2), np.float32)
    values[f"{name}.weight_shape"] = np.array([128, 64], np.int64)
    maker.save(path / "model.safetensors", values)
    model = inspect(path)
    assert str(model.quantization.sentence) == "4-bit compressed-tensors, group 32/64"
    assert (model.quantization.bits, model.quantization.group_size, model.quantization.symmetric) == (4, None, None)
    assert model.parameters == sum(array.size for array in maker.tensors().values())
    assert [linear.in_features for linear in model.linears if linear.name == name] == [64]


@pytest.mark.parametrize(
    ("scaling", "kind", "factor", "context", "told"),
    [
        ({"type": "linear", "factor": 2.0}, "linear", 2.0, 256, []),
        ({"factor": 2.0}, None, None, 128, ["rope_untyped"]),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, "yarn", 4.0, 128, []),
        ({"rope_type": "default"}, None, None, 128, []),
        (None, None, None, 128, []),
        ("nonsense", None, None, 128, []),
    ],
)
def test_position_scaling(write_tiny, scaling, kind, factor, context, told):  # H05
    model = inspect(write_tiny(config={"rope_scaling": scaling}))
    assert (model.rope, model.rope_factor, model.context) == (kind, factor, context)
    assert codes(model) == told and model.can_quantize


def test_position_scaling_in_the_newer_field(write_tiny):
    parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    assert inspect(write_tiny(config={"rope_parameters": parameters})).rope == "linear"


def test_several_end_tokens_and_their_disagreement(write_tiny):  # H29
    model = inspect(write_tiny(config={"eos_token_id": [2, 5, 7]}, template=maker.TEMPLATE.replace("</s>", "<|end|>")))
    assert model.eos_ids == (2, 5, 7)
    assert codes(model) == ["end_tokens_differ"] and "2, 5, 7" in str(model.problems[0].sentence)


def test_end_tokens_of_the_generation_config(write_tiny):
    assert inspect(write_tiny("a", generation={"eos_token_id": [2, 5]})).eos_ids == (2, 5)
    agreeing = inspect(write_tiny("b", generation={"eos_token_id": 2}))
    assert agreeing.eos_ids == (2,) and agreeing.problems == ()


def test_a_template_that_ends_a_turn_with_no_end_token(write_tiny):
    model = inspect(write_tiny(template=maker.TEMPLATE.replace("</s>", "<|end|>")))
    assert codes(model) == ["turn_never_ends"] and "7" in str(model.problems[0].hint)


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no') }}", "{% broken", "{{ messages[7].content }}", "{{ ''.__class__.__mro__ }}"],
)
def test_a_template_that_refuses_tells_nothing(write_tiny, template):
    model = inspect(write_tiny(template=template))
    assert model.has_template and model.problems == ()


def test_template_in_the_tokenizer_config(write_tiny):
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": maker.TEMPLATE}]
    assert inspect(write_tiny("a", template=None, tokenizer={"chat_template": named})).has_template
    bare = inspect(write_tiny("b", template=None))
    assert codes(bare) == ["no_template"] and bare.can_serve and bare.can_quantize


def test_mixed_and_differing_number_types(write_tiny):
    differs = inspect(write_tiny("a", dtype="F16", config={"torch_dtype": "bfloat16"}))
    assert differs.dtype == "F16" and codes(differs) == ["dtype_differs"]
    path = write_tiny("b", dtype="F32", shards=2)
    second = [
        name
        for name, file in json.loads((path / maker.INDEX).read_text())["weight_map"].items()
        if file.startswith("model-00002")
    ]
    values = maker.tensors()
    maker.save(path / "model-00002-of-00002.safetensors", {name: values[name] for name in second}, "BF16")
    assert codes(inspect(path)) == ["mixed_dtype"]


def test_awkward_paths(write_tiny):  # H06
    model = inspect(write_tiny("模型 库/ünï 'quote' & co/m1"))
    assert model.name == "m1" and model.can_quantize


def test_no_folder_and_an_empty_one(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(WorkbenchError) as caught:
            inspect(path)
        assert caught.value.hint


def test_scan_lists_models_one_and_two_levels_down(write_tiny, tmp_path):
    write_tiny("library/b")
    write_tiny("library/author/a")
    write_tiny("library/.partial")
    broken = write_tiny("library/c")
    (broken / "config.json").write_text("{")
    (tmp_path / "library" / "notes").mkdir()
    found = scan([tmp_path / "library", tmp_path / "absent", tmp_path / "library" / "b"])
    assert [entry.folder.name for entry in found] == ["a", "b", "c"]
    assert isinstance(found[2], Unreadable) and str(found[2].error)


def test_fields_of_wrong_types_are_not_believed(write_tiny):
    strange = {"num_hidden_layers": "two", "vocab_size": -1, "eos_token_id": "</s>", "head_dim": None, "torch_dtype": 7}
    model = inspect(write_tiny(config=strange, template=None))
    assert (model.layers, model.vocab, model.head_dim) == (2, 256, 16)


def test_public_names():
    assert set(catalog.__all__) >= {"Linear", "Model", "Problem", "Quantized", "Tensor", "inspect", "scan"}
