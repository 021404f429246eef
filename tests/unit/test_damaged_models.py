"""What a damaged or contradictory model folder says at a look, before anything is read or run."""

import json
import struct

import pytest
import tiny as maker

from workbench.catalog.folder import inspect

NORM, UP = "model.layers.0.input_layernorm.weight", "model.layers.0.mlp.up_proj.weight"
DEEP = "[" * 200_000


def codes(model):
    return [problem.code for problem in model.problems]


def rewritten(folder, change):
    """The header of the only file, changed; the values stay where they are."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return folder


@pytest.mark.parametrize(
    "index",
    [
        DEEP,
        "null",
        '{"weight_map": {"a": 5}}',
        '{"weight_map": {"a": "\\ud800.safetensors"}}',
        '{"weight_map": {"\\ud800": "a.safetensors"}}',
    ],
)
def test_an_index_that_is_none(write_tiny, index):
    folder = write_tiny(shards=2)
    (folder / maker.INDEX).write_text(index)
    assert codes(inspect(folder)) == ["damaged_index"]


def test_an_index_with_a_name_that_no_file_can_have(write_tiny):
    folder = write_tiny(shards=2)
    (folder / maker.INDEX).write_text(json.dumps({"weight_map": {"a": "x" * 300}}))
    model = inspect(folder)
    assert codes(model) == ["incomplete"] and model.missing[0].tensors == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header[UP].update(shape=[999, 64]),
        lambda header: header[UP].update(shape=[2**70, 2**70]),
        lambda header: header[UP].update(dtype="F32"),
        lambda header: header[UP].update(data_offsets=header[NORM]["data_offsets"], shape=header[NORM]["shape"]),
        lambda header: header.update({"\ud800": header.pop(UP)}),
    ],
    ids=["shape", "huge", "type", "overlap", "name"],
)
def test_a_header_that_contradicts_its_file(tiny, change):
    model = inspect(rewritten(tiny, change))
    assert codes(model) == ["damaged_file"] and not model.can_quantize and not model.can_serve


def test_a_tensor_in_two_files_is_refused(write_tiny):
    folder = write_tiny(shards=2)
    values = maker.tensors()
    maker.save(folder / "model-00002-of-00002.safetensors", values)
    model = inspect(folder)
    assert codes(model) == ["stored_twice"] and not model.can_quantize and model.can_serve
    assert len(model.tensors) == len(values)  # none is counted twice


def test_an_index_that_is_wrong_about_the_places(write_tiny):
    """The engine reads all files that it names, and so do we: a tensor is where the files have it."""
    folder = write_tiny(shards=2)
    index = json.loads((folder / maker.INDEX).read_text())
    first, second = list(index["weight_map"])[3:5]
    index["weight_map"][first] = "model-00002-of-00002.safetensors"
    del index["weight_map"][second]
    (folder / maker.INDEX).write_text(json.dumps(index))
    model = inspect(folder)
    assert model.problems == () and len(model.tensors) == len(maker.tensors())


@pytest.mark.parametrize("file", ["config.json", "hf_quant_config.json", "generation_config.json", "lathe-failed.json"])
def test_json_that_is_nested_too_deeply(tiny, file):
    (tiny / file).write_text(DEEP)
    if file == "config.json":
        with pytest.raises(Exception, match="cannot be read") as caught:
            inspect(tiny)
        assert caught.type.__name__ == "WorkbenchError"
    else:
        assert codes(inspect(tiny)) == (["failed_check"] if "failed" in file else [])


@pytest.mark.parametrize("mark", ['{"message": 5, "values": []}', '{"message": "a {b}", "values": 5}', "[]", "{}"])
def test_a_mark_of_failure_that_is_damaged_still_marks(tiny, mark):
    (tiny / "lathe-failed.json").write_text(mark)
    model = inspect(tiny)
    assert codes(model) == ["failed_check"] and str(model.problems[0].sentence)
