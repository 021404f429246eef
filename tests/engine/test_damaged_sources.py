"""A model whose files contradict each other is refused in a sentence before the long run, whatever libraries raise."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny as maker
from quantization_models import TEXT, byte_tokenizer, quantized, write_model
from transformers import AutoConfig

from workbench import recipe
from workbench.catalog.folder import inspect
from workbench.errors import WorkbenchError
from workbench.events import encode
from workbench.measure import quality
from workbench.quant_events import ModuleDone, QualityMeasured
from workbench.quantization import calibration
from workbench.quantization.weights import Weights


def refused(folder, output, **spec):
    """What is said, once nothing was quantized and nothing left."""
    with pytest.raises(WorkbenchError) as caught:
        quantized(folder, output, **spec)
    assert caught.value.hint and "\n" not in str(caught.value)
    assert not [path for path in output.parent.iterdir() if output.name in path.name]
    return str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": "64"}, {"num_attention_heads": 0}, {"num_key_value_heads": 0}, {"torch_dtype": []},
        {"hidden_act": None}, {"head_dim": 0}, {"rope_theta": 2**70}, {"rms_norm_eps": None}, {"pad_token_id": 2**70},
        {"eos_token_id": {}}, {"rope_theta": -1}, {"vocab_size": 0}, {"layer_types": {}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_a_configuration_that_nobody_can_follow(write_tiny, tmp_path, wrong):
    assert "cannot be" in refused(write_tiny(config=wrong), tmp_path / "out")


def test_a_context_of_no_tokens_cuts_nothing(write_tiny, tmp_path):
    quantized(write_tiny(positions=-1), tmp_path / "out", replace(recipe.LAYERED, samples=1, length=64))
    assert (tmp_path / "out/config.json").is_file()


@pytest.mark.parametrize("wrong", [{"head_dim": 16}, {"intermediate_size": 96}, {"num_key_value_heads": 4}])
def test_weights_of_another_shape_than_the_configuration_says(write_tiny, tmp_path, wrong):
    assert "but config.json makes it" in refused(write_tiny(config=wrong), tmp_path / "out")


@pytest.mark.parametrize(
    "file", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
)
@pytest.mark.parametrize("content", [b"null", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"eos_token": 5}'])
def test_tokenizer_files_that_hold_something_else(tiny, file, content):
    (tiny / file).write_bytes(content)
    try:
        calibration.tokenizer_of(tiny)
    except WorkbenchError as error:
        assert "tokenizer" in str(error) and error.hint


def test_a_side_file_that_cannot_be_read_is_told_before_the_run(tiny, tmp_path):
    """It used to be found when the result was written, at the end."""
    (tiny / "generation_config.json").mkdir()
    assert "generation_config.json of the model cannot be read" in refused(tiny, tmp_path / "out")


def test_a_tokenizer_with_more_tokens_than_the_model(write_tiny, tmp_path):
    few = write_tiny(edit={"model.embed_tokens.weight": maker.tensors()["model.embed_tokens.weight"][:100]})
    assert "has 100 rows only" in refused(few, tmp_path / "out")


def test_the_files_that_are_read_are_those_that_were_planned(write_tiny, tmp_path):
    """Mistral's repositories hold every weight twice, in two files under two names."""
    folder = write_tiny()
    maker.save(folder / "consolidated.safetensors", {"layers.0.attention.wq.weight": np.zeros((4, 4), np.float32)})
    assert set(Weights(folder)) == set(maker.tensors())
    quantized(folder, tmp_path / "out", "rtn")
    assert "layers.0.attention.wq.weight" not in Weights(tmp_path / "out")


def test_an_index_that_is_wrong_about_the_places(write_tiny, tmp_path):
    plain, folder = write_tiny("plain"), write_tiny("shards", shards=2)
    index = json.loads((folder / maker.INDEX).read_text())
    first, second = list(index["weight_map"])[3:5]
    index["weight_map"][first] = "model-00002-of-00002.safetensors"
    del index["weight_map"][second]
    (folder / maker.INDEX).write_text(json.dumps(index))
    for each in (plain, folder):
        quantized(each, tmp_path / f"{each.name} out", "rtn")
    one, other = (tmp_path / f"{each.name} out" / "model.safetensors" for each in (plain, folder))
    assert one.read_bytes() == other.read_bytes()


def test_a_result_called_rtn_is_measured_as_itself(tmp_path):
    events = quantized(write_model(tmp_path / "m"), tmp_path / "RTN", "rtn", held_tokens=60, measure_rtn=True)
    assert [event.name for event in events if isinstance(event, QualityMeasured)] == ["RTN", "plain RTN"]


def test_answers_that_are_not_finite_are_no_measurement(write_tiny, tmp_path):
    """Its weights are finite; what comes out of them is not."""
    source = write_tiny("m", dtype="F32")
    huge = write_tiny("huge", dtype="F32", edit={"model.norm.weight": np.full(64, 3e38, np.float32)})
    spec = {"original": source, "candidates": [huge], "tokens": 40}
    with pytest.raises(WorkbenchError, match="not finite"):
        list(quality.run(spec, tmp_path))


@pytest.mark.parametrize("kind", ["bom.txt", "bom.jsonl", "lines.jsonl", "crlf.txt"])
def test_calibration_text_as_editors_write_it(tmp_path, kind):
    """A mark of byte order, Windows' line ends, and JSON with the line separators that Unicode has besides."""
    file = tmp_path / kind
    content = {
        "bom.txt": b"\xef\xbb\xbfone\n<|document|>\ntwo\n",
        "bom.jsonl": b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n',
        "lines.jsonl": '{"text": "one\u2028and\u0085a half"}\r\n\r\n{"text": "two"}'.encode(),
        "crlf.txt": b"one\r\n<|document|>\r\ntwo\r\n",
    }[kind]
    file.write_bytes(content)
    assert calibration.documents(file) == ["one" if "lines" not in kind else "one\u2028and\u0085a half", "two"]


@pytest.mark.parametrize("line", ['{"text": 5}', '{"content": "x"}', "[]", '"text"', "null", "[" * 100_000, '{"text"'])
def test_calibration_lines_of_another_kind(tmp_path, line):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(WorkbenchError, match="not JSON lines"):
        calibration.documents(tmp_path / "a.jsonl")


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\0\1\2\xff", b"<|document|>\n" * 5])
def test_calibration_text_without_text(tmp_path, content):
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    chosen = replace(recipe.LAYERED, calibration_file=str(file))
    with pytest.raises(WorkbenchError, match=r"empty|cannot be read") as caught:
        quantized(write_model(tmp_path / "m"), tmp_path / "out", chosen)
    assert caught.value.hint and not (tmp_path / "out").exists()


def test_one_line_of_many_letters_is_cut(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT.replace("\n", " ") * 400)
    found = calibration.sequences(calibration.documents(file), byte_tokenizer(), 64, 640)
    assert found.tokens == 640 and {len(piece) for piece in found.pieces} == {64}


def test_what_is_quantized_already_stays_as_it_is(write_tiny, tmp_path):
    """H03, in the job itself: whatever asked for it, nothing is begun and no byte of the source changes."""
    packed = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
    source = write_tiny(config={"quantization_config": packed})
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    assert "4-bit AWQ, group 32" in refused(source, tmp_path / "out")
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before


@pytest.mark.parametrize("chosen", ["layered", "awq"])
def test_a_value_too_large_for_half_precision_is_never_infinite(write_tiny, tmp_path, chosen):
    """H04 b: embeddings keep the type that they were stored in."""
    embedding = maker.tensors()["model.embed_tokens.weight"]
    embedding[10, 0] = 70_000
    source = write_tiny(edit={"model.embed_tokens.weight": embedding})
    small = replace(recipe.PRESETS[chosen], samples=2, length=64)
    quantized(source, tmp_path / "out", small)
    stored = Weights(tmp_path / "out")
    tensors = dict(stored.each(stored))
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())
    assert tensors["model.embed_tokens.weight"][10, 0].item() == pytest.approx(70_000, rel=0.01)
    config = json.loads((tmp_path / "out/config.json").read_text())
    named = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values() if tensor.is_floating_point()}
    assert named == {config.get("dtype") or config["torch_dtype"]} == {"bfloat16"}


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    ],
    ids=["linear", "yarn"],
)
def test_scaled_positions_survive(write_tiny, tmp_path, scaling):
    """H05: what is loaded from the result is what is loaded from the source."""
    source, output = write_tiny(config={"rope_scaling": scaling}), tmp_path / "out"
    quantized(source, output, "rtn")
    theirs, ours = (AutoConfig.from_pretrained(folder).rope_parameters for folder in (source, output))
    assert ours == theirs and ours["factor"] == scaling["factor"]
    before, after = inspect(source), inspect(output)
    assert (after.context, after.rope, after.rope_factor) == (before.context, before.rope, before.rope_factor)


def test_values_at_the_ends_of_float32(write_tiny, tmp_path):
    """Their squares and steps leave float32: too large ones are refused by name, the smallest are drawn."""
    up = maker.tensors()["model.layers.0.mlp.up_proj.weight"]
    huge = write_tiny("huge", dtype="F32", edit={"model.layers.0.mlp.up_proj.weight": up * 1e30})
    assert "model.layers.0.mlp.up_proj.weight holds values up to" in refused(huge, tmp_path / "out")
    small = write_tiny("small", dtype="F32", edit={"model.layers.0.mlp.up_proj.weight": up * 1e-38})
    events = quantized(small, tmp_path / "out", "rtn")
    found = next(event for event in events if isinstance(event, ModuleDone) and "0.mlp.up" in event.name)
    assert sum(found.before) == up.size and sum(count > 0 for count in found.before) > 20
    assert all(encode(event) for event in events)
