"""Uniform results in AutoAWQ's and GPTQ's formats: the same weights to the last bit.

The readers here are written from the formats' own loops, one value at a time, apart from the code under test.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import in_vllm
import pytest
import torch
from exporting import uniform, written
from quantization_models import quantized as run_quantization
from quantization_models import write_model
from safetensors.torch import load_file, save_file
from tiny_models import MLP, write_packed, write_plain

from workbench import export as exports
from workbench import recipe
from workbench.catalog.folder import inspect
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Finished, Note, Stage
from workbench.quantization import export, packing

MODULE = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return write_plain(tmp_path_factory.mktemp("plain") / "model", bias=True, tokenizer=True)


@pytest.fixture
def packed(plain, tmp_path):
    """`packed(bits, group, symmetric)` is a folder with that one scheme, its scales in bfloat16 as ours are."""

    def make(*scheme, **options) -> Path:
        folder = tmp_path / "packed"
        write_packed(plain, folder, uniform(*scheme), **options)
        tensors = load_file(folder / "model.safetensors")
        narrowed = {
            name: tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor
            for name, tensor in tensors.items()
        }
        save_file(narrowed, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


def bits_of(word: int, bits: int) -> list[int]:
    return [(word >> place) & ((1 << bits) - 1) for place in range(0, 32, bits)]


def read_awq(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """As AutoAWQ unpacks: [out, in] of float32."""

    def plainly(words: torch.Tensor) -> torch.Tensor:
        rows = []
        for row in words.tolist():
            values = []
            for word in row:
                eight = bits_of(word, 4)
                values += [eight[place] for place in (0, 4, 1, 5, 2, 6, 3, 7)]
            rows.append(values)
        return torch.tensor(rows)

    codes, zeros, scales = plainly(tensors["qweight"]), plainly(tensors["qzeros"]), tensors["scales"].float()
    size = len(codes) // len(scales)
    return torch.stack([(codes[i] - zeros[i // size]) * scales[i // size] for i in range(len(codes))], dim=1)


def read_gptq(tensors: dict[str, torch.Tensor], bits: int, version: int) -> torch.Tensor:
    """As AutoGPTQ unpacks: [out, in] of float32."""
    rows = [[bits_of(word, bits) for word in row] for row in tensors["qweight"].tolist()]
    codes = torch.tensor([[each[place] for each in row] for row in rows for place in range(32 // bits)])
    zeros = torch.tensor([[one for word in row for one in bits_of(word, bits)] for row in tensors["qzeros"].tolist()])
    if version == 1:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    group, scales = tensors["g_idx"].long(), tensors["scales"].float()
    return ((codes - zeros[group]) * scales[group]).t()


def layer(folder: Path, module: str) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "model.safetensors")
    return {name.removeprefix(f"{module}."): tensors[name] for name in tensors if name.startswith(f"{module}.")}


def reference(folder: Path) -> dict[str, torch.Tensor]:
    """Every weight as our own reader unpacks the source."""
    return packing.unpack_block(load_file(folder / "model.safetensors"))


SCHEMES = {
    "symmetric": (4, 32, True), "zero points": (4, 64, False), "rows": (4, 0, True), "eight bits": (8, 32, True),
    "eight bits, rows": (8, 0, True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "scheme"),
    [(form, scheme) for form, widths in exports.BITS.items() for scheme in SCHEMES if SCHEMES[scheme][0] in widths],
)
def test_every_weight_is_the_same_to_the_last_bit(packed, form, scheme):
    bits, _, symmetric = SCHEMES[scheme]
    source = packed(*SCHEMES[scheme])
    if form == "gptq" and not symmetric:
        form = "gptq_v2"  # random groups may have a zero of 0
    written(source, form)
    out = source.parent / form
    expected = reference(source)
    names = [linear.name for linear in inspect(source).linears]
    assert len(names) == 14
    for name in names:
        tensors = layer(out, name)
        found = read_awq(tensors) if form == "awq" else read_gptq(tensors, bits, 1 if form == "gptq" else 2)
        assert torch.equal(found, expected[f"{name}.weight"]), name
        assert tensors["scales"].dtype == torch.float16
        assert not {"weight_packed", "weight_scale", "weight_shape", "weight_zero_point"} & tensors.keys()


@pytest.mark.parametrize("form", exports.FORMATS)
def test_the_rest_of_the_folder_is_carried_over(packed, form):
    source = packed()
    before = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in source.iterdir()}
    events = written(source, form)
    out = source.parent / form
    assert before == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in source.iterdir()}
    mine, theirs = load_file(out / "model.safetensors"), load_file(source / "model.safetensors")
    for name, tensor in theirs.items():
        if ".weight_" not in name:
            assert torch.equal(tensor, mine[name]), name
    assert f"{MODULE}.bias" in mine and "model.embed_tokens.weight" in mine
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert isinstance(events[-1], Finished) and events[-1].path == str(out)
    assert [event.name for event in events if isinstance(event, Stage)] == [
        "Converting the layers", "Reading the result back",
    ]  # fmt: skip
    assert [event.done for event in events if isinstance(event, Advanced)] == [*range(1, 15), *range(1, 15)]
    size = (out / "model.safetensors").stat().st_size
    assert events[-1].size == size
    assert exports.plan(source, form).predicted_bytes == pytest.approx(size, rel=0.05)
    assert sorted(path.name for path in source.parent.iterdir()) == sorted([form, "packed"])


@pytest.mark.parametrize("group", [32, 0])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_an_activation_order_is_never_asked_for(packed, form, group):  # H15
    source = packed(4, group)
    written(source, form)
    out = source.parent / form
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["desc_act"] is False and config["sym"] is True
    assert (config["bits"], config["group_size"], config["checkpoint_format"]) == (4, group or -1, form)
    assert json.loads((out / "quantize_config.json").read_text()) == config
    order = layer(out, MODULE)["g_idx"]
    assert torch.equal(order, torch.arange(128, dtype=torch.int32) // (group or 128))


def test_awq_names_itself(packed):
    source = packed(4, 64, False)
    written(source, "awq")
    config = json.loads((source.parent / "awq" / "config.json").read_text())
    assert config["quantization_config"] == {
        "quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": None,
    }  # fmt: skip
    found = inspect(source.parent / "awq").quantization
    assert str(found.description) == "AWQ (gemm): 4-bit integers, group 64, with zero points."


def test_a_result_of_our_own(tmp_path):
    """The whole way: quantize, export, and the weights are those that the result stands for."""
    choice = replace(recipe.PRESETS["rtn"].mlp, group_size=32, symmetric=False, bits=4)
    chosen = replace(recipe.PRESETS["rtn"], attention=choice, mlp=choice)
    run_quantization(write_model(tmp_path / "model"), tmp_path / "result", chosen)
    written(tmp_path / "result", "awq")
    expected = reference(tmp_path / "result")
    for linear in inspect(tmp_path / "result").linears:
        assert torch.equal(read_awq(layer(tmp_path / "awq", linear.name)), expected[f"{linear.name}.weight"])


def test_scales_that_float16_cannot_hold_stay_as_they_are(packed):
    source = packed()
    tensors = load_file(source / "model.safetensors")
    tensors[f"{MODULE}.weight_scale"][0, 0] = 1e-7
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    written(source, "awq")
    assert layer(source.parent / "awq", MODULE)["scales"].dtype == torch.bfloat16
    assert torch.equal(read_awq(layer(source.parent / "awq", MODULE)), reference(source)[f"{MODULE}.weight"])


def test_a_mixed_model_is_refused_with_the_layers_that_differ(plain, tmp_path):
    groups = uniform(4, 32, False) | {MLP: uniform(4, 64)[MLP]}
    write_packed(plain, tmp_path / "mixed", groups)
    with pytest.raises(WorkbenchError) as error:
        exports.plan(tmp_path / "mixed", "awq")
    assert str(error.value) == (
        "AWQ has one scheme for all layers. Most have 4-bit integers, group 32, with zero points; 6 differ with 4-bit "
        "integers, group 64, symmetric: mlp.down_proj, mlp.gate_proj, mlp.up_proj."
    )
    assert error.value.hint


def test_layers_that_are_kept_are_refused(plain, tmp_path):
    kept = ("model.layers.1.mlp.down_proj",)
    write_packed(plain, tmp_path / "kept", uniform(), kept)
    with pytest.raises(WorkbenchError, match=r"1 is kept plain: model\.layers\.1\.mlp\.down_proj"):
        exports.plan(tmp_path / "kept", "gptq")


def test_what_cannot_be_exported_is_a_sentence(packed, plain):
    with pytest.raises(WorkbenchError, match="no packed layers"):
        exports.plan(plain, "awq")
    source = packed(8, 32)
    with pytest.raises(WorkbenchError, match="AWQ is exported with 4 bits; these layers have 8") as error:
        exports.plan(source, "awq")
    assert error.value.hint == "Export them as gptq."
    with pytest.raises(WorkbenchError, match="no format exl2"):
        exports.plan(source, "exl2")


def test_zero_points_of_zero_have_no_place_in_the_first_gptq_format(packed):
    source = packed(4, 32, False)
    tensors = load_file(source / "model.safetensors")
    tensors[f"{MODULE}.weight_zero_point"][0, 0] &= ~0xF
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WorkbenchError, match="zero points of 0") as error:
        written(source, "gptq")
    assert "gptq_v2" in error.value.hint
    assert [path.name for path in source.parent.iterdir()] == ["packed"]
    events = written(source, "gptq_v2")
    assert any(isinstance(event, Note) and "symmetric GPTQ" in event.message for event in events)
    found = read_gptq(layer(source.parent / "gptq_v2", MODULE), 4, 2)
    assert torch.equal(found, reference(source)[f"{MODULE}.weight"])


def test_an_earlier_result_stays_until_the_new_one_is_whole(packed):
    source = packed()
    written(source, "awq")
    with pytest.raises(WorkbenchError, match="earlier result"):
        written(source, "awq")
    running = export.run(exports.spec(exports.plan(source, "gptq"), source.parent / "awq", True), source.parent)
    next(running), next(running)
    running.close()  # cancelled
    assert inspect(source.parent / "awq").quantization.method == "awq"
    assert sorted(path.name for path in source.parent.iterdir()) == ["awq", "packed"]
    written(source, "gptq", "awq", replace=True)
    assert inspect(source.parent / "awq").quantization.method == "gptq"


def test_damage_on_the_way_to_the_disk_is_found(packed, monkeypatch):
    source = packed()
    monkeypatch.setattr(export.layouts, "AWQ_ORDER", (0, 1, 2, 3, 4, 5, 6, 7))
    written(source, "awq", "consistent")  # writer and reader agree, whatever the order: not what this looks for
    honest = export.layouts.to_awq

    def damaged(weight):
        tensors = honest(weight)
        tensors["qweight"][3, 1] ^= 1 << 9
        return tensors

    monkeypatch.setattr(export.layouts, "to_awq", damaged)
    with pytest.raises(WorkbenchError, match="does not read back"):
        written(source, "awq")
    assert not (source.parent / "awq").exists()


def test_the_command(packed, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from workbench.cli import app

    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    source = packed()
    done = CliRunner().invoke(app, ["export", str(source), "-o", str(tmp_path / "out"), "--format", "gptq", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["path"] == str(tmp_path / "out")
    assert inspect(tmp_path / "out").quantization.method == "gptq"


def test_vllms_own_functions_unpack_the_same_integers(tmp_path):
    told, _ = in_vllm.run("unpack_in_vllm.py", tmp_path / "told.json")
    assert told == {"awq": True, "gptq": True, "gptq eight bits": True}
