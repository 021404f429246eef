"""The whole job on tiny models: events, what lies on disk, and what a reader makes of it."""

import json
import re
import stat
import weakref
from dataclasses import replace

import pytest
import torch
from compressed_tensors.compressors import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationConfig
from quantization_models import TEXT, byte_tokenizer, quantized, write_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from workbench import plan, recipe
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Finished, Note, Stage, decode, encode
from workbench.quant_events import ModuleDone, ModuleStarted, QualityMeasured
from workbench.quantization import calibration, stats
from workbench.quantization.blocks import Skeleton

BYTES = byte_tokenizer()


def tensors_of(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def done(events):
    return {event.name: event for event in events if isinstance(event, ModuleDone)}


def logits_of(folder, tokens):
    """By transformers itself, unpacking through compressed-tensors."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(tokens).logits


@pytest.fixture(scope="module")
def layered(tmp_path_factory):
    """The default recipe on a model with attention biases, from and to folders with difficult names (H06)."""
    folder = tmp_path_factory.mktemp("q") / "模型 库" / "ünï 'quote' & co"
    folder.mkdir(parents=True)
    source = write_model(folder / "m1", attention_bias=True, tie_word_embeddings=False)
    (source / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.9, "eos_token_id": [2, 5]}')
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "LICENSE").write_text("free")
    return source, folder / "m1 INT4", quantized(source, folder / "m1 INT4")


@pytest.mark.parametrize("bits", [2, 3])
def test_few_bits_are_written_verified_and_read_again(layered, tmp_path, bits):
    source, _, _ = layered
    few = replace(
        recipe.LAYERED,
        attention=replace(recipe.LAYERED.attention, bits=bits, group_size=32),
        mlp=replace(recipe.LAYERED.mlp, bits=bits, group_size=recipe.WHOLE_ROW),
    )
    target = tmp_path / "few"
    *_, end = quantized(source, target, few)
    assert isinstance(end, Finished)
    assert end.size == plan.make(catalog.inspect(source), few).predicted_bytes
    name, stored = "model.layers.1.mlp.down_proj", tensors_of(target)
    assert stored[f"{name}.weight_packed"].shape[1] == 128 * bits // 32
    read = Skeleton(target, torch.device("cpu")).load(1).mlp.down_proj.weight
    assert all(len(row.unique()) <= 2**bits for row in read)


def test_each_module_ends_before_the_next_begins(layered):
    _, target, events = layered
    steps = [event for event in events if isinstance(event, ModuleStarted | ModuleDone)]
    assert [type(step) for step in steps] == [ModuleStarted, ModuleDone] * 14
    assert [step.name for step in steps[::2]] == [step.name for step in steps[1::2]]
    roles = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert [step.name.rpartition(".")[2] for step in steps[::2]] == roles * 2
    assert isinstance(events[-1], Finished) and events[-1].path == str(target)
    assert events[-1].size == sum(file.stat().st_size for file in target.glob("*.safetensors"))
    assert all(decode(encode(event)) == event for event in events)
    methods = {module.name.rpartition(".")[2]: module.method for module in done(events).values()}
    assert methods == dict.fromkeys(roles[:4], "awq") | dict.fromkeys(roles[4:], "gptq")


def test_counts_add_up_and_after_is_what_lies_on_disk(layered):
    _, target, events = layered
    tensors = tensors_of(target)
    config = QuantizationConfig.model_validate(json.loads((target / "config.json").read_text())["quantization_config"])
    for name, module in done(events).items():
        scheme = next(s for s in config.config_groups.values() if any(_hits(t, name) for t in s.targets))
        own = {
            key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.weight")
        }
        own["weight_scale"] = own["weight_scale"].float()
        read = PackedQuantizationCompressor.decompress(own, scheme)["weight"]
        assert module.after == stats.counts(read, module.low, module.high)
        assert sum(module.before) == sum(module.after) == read.numel() == module.shape[0] * module.shape[1]
        assert module.before != module.after
        assert 0 < module.output_error < 1.1 * module.plain_output_error
        assert len(module.levels) == 16 and list(module.levels) == sorted(module.levels)
        assert module.scale_low if module.method == "awq" and "v_proj" not in name else True


def _hits(target, name):
    return re.match(target.removeprefix("re:"), name) is not None


def test_transformers_reads_what_we_measured(layered):
    _, target, _ = layered
    tokens = torch.tensor([BYTES(TEXT)["input_ids"][:40]])
    ours = Skeleton(target, torch.device("cpu"))
    hidden = ours.embed([tokens])[0]
    with torch.no_grad():
        for index in range(2):
            hidden = ours.forward(ours.load(index), hidden)
        norm, head = ours.last()
        assert torch.allclose(norm(hidden) @ head.T, logits_of(target, tokens), atol=0.02)  # it unpacks to bfloat16


def test_only_what_carries_scales_changes(layered):
    """H11 b."""
    source, target, events = layered
    before, after = tensors_of(source), tensors_of(target)
    packed = {f"{name}.weight" for name in done(events)}
    assert {name for name in before if name not in packed} == {name for name in after if ".weight_" not in name}
    changed = {name for name in before.keys() & after.keys() if not torch.equal(before[name], after[name])}
    allowed = {
        f"model.layers.{i}.{part}" for i in (0, 1) for part in ("input_layernorm.weight", "self_attn.v_proj.bias")
    }
    assert changed <= allowed and "model.layers.0.input_layernorm.weight" in changed
    assert all(after[name].dtype == before[name].dtype for name in before.keys() & after.keys())
    for block in (0, 1):
        ratio = (
            before[f"model.layers.{block}.input_layernorm.weight"]
            / after[f"model.layers.{block}.input_layernorm.weight"]
        )
        report = done(events)[f"model.layers.{block}.self_attn.q_proj"]
        assert ratio.float().min().item() == pytest.approx(report.scale_low, rel=0.01)
        assert ratio.float().max().item() == pytest.approx(report.scale_high, rel=0.01)


def test_a_block_is_gone_before_the_next_is_loaded(tmp_path, monkeypatch):
    seen, real = [], Skeleton.load

    def load(skeleton, index):
        assert not [index for index, block in seen if block()]
        block = real(skeleton, index)
        seen.append((index, weakref.ref(block)))
        return block

    monkeypatch.setattr(Skeleton, "load", load)
    quantized(write_model(tmp_path / "model", num_hidden_layers=3), tmp_path / "out", "rtn")
    assert [index for index, _ in seen][-3:] == [0, 1, 2]


def test_side_files_arrive_as_they_are_and_can_be_read_by_all(layered):
    source, target, _ = layered
    for name in ("generation_config.json", "chat_template.jinja", "LICENSE", "tokenizer.json", "tokenizer_config.json"):
        assert (target / name).read_bytes() == (source / name).read_bytes(), name
    assert {stat.S_IMODE(file.stat().st_mode) for file in target.iterdir()} == {0o644}
    assert not [file for file in target.parent.iterdir() if "partial" in file.name]


def test_config_names_each_scheme_once(layered):
    _, target, _ = layered
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert (config["quant_method"], config["format"], config["ignore"]) == (
        "compressed-tensors",
        "pack-quantized",
        ["lm_head"],
    )
    schemes = [(g["weights"]["group_size"], g["weights"]["symmetric"]) for g in config["config_groups"].values()]
    assert schemes == [(32, False), (128, True)] or schemes == [(32, False), (64, True)]
    assert all(g["weights"]["actorder"] is None for g in config["config_groups"].values())


def test_tied_embeddings_are_written_once(tmp_path):
    """H11 a."""
    source = write_model(tmp_path / "tied", tie_word_embeddings=True)
    events = quantized(source, tmp_path / "out")
    tensors = tensors_of(tmp_path / "out")
    assert "lm_head.weight" not in tensors
    assert torch.equal(tensors["model.embed_tokens.weight"], tensors_of(source)["model.embed_tokens.weight"])
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is True
    planned = plan.make(catalog.inspect(source), recipe.LAYERED).predicted_bytes
    assert (tmp_path / "out/model.safetensors").stat().st_size == pytest.approx(planned, rel=0.05)
    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral"])
def test_families_are_understood_by_structure(tmp_path, family):
    source = write_model(tmp_path / family, family)
    events = quantized(source, tmp_path / "out", "best")
    assert all(module.output_error < module.plain_output_error for module in done(events).values())
    tokens = torch.tensor([BYTES(TEXT)["input_ids"][:60]])
    right, ours = logits_of(source, tokens), logits_of(tmp_path / "out", tokens)
    assert (ours - right).std() < 0.35 * right.std()


def test_an_unknown_structure_is_refused_with_what_was_not_understood(tmp_path):
    source = write_model(tmp_path / "s", "starcoder2")
    with pytest.raises(WorkbenchError, match=r"Starcoder2ForCausalLM.* model\.layers\.0\.mlp\.c_fc"):
        quantized(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_dead_channel_and_zero_row(tmp_path):
    """H09."""

    def kill(model):
        layer = model.model.layers[0]
        layer.input_layernorm.weight[3] = 0
        layer.post_attention_layernorm.weight[3] = 0
        layer.mlp.gate_proj.weight[7] = 0
        layer.self_attn.q_proj.weight[7] = 0

    source = write_model(tmp_path / "dead", change=kill)
    for name in ("layered", "best"):
        events = quantized(source, tmp_path / name, name)
        tensors = tensors_of(tmp_path / name)
        scales = [tensor for key, tensor in tensors.items() if key.endswith("weight_scale")]
        assert all(torch.isfinite(scale).all() and (scale != 0).all() for scale in scales)
        block = Skeleton(tmp_path / name, torch.device("cpu")).load(0)
        assert not block.self_attn.q_proj.weight[7].any() and not block.mlp.gate_proj.weight[7].any()
        noted = [event for event in events if isinstance(event, Note) and "rounded plainly" in event.message]
        assert len(noted) == any(module.fallback for module in done(events).values())


def test_every_real_token_is_used_once(tmp_path, monkeypatch):
    """H16: three texts of 5, 36 and 423 tokens, a tokenizer without a pad token, asked for 8 × 512."""
    seen = []
    original = Skeleton.attend

    def attend(self, block, normed):
        seen.append((normed.shape[0] * normed.shape[1], id(block)))
        return original(self, block, normed)

    source = write_model(tmp_path / "m")
    text = tmp_path / "own.txt"
    text.write_text("\n<|document|>\n".join(("x" * 5, "y" * 36, "z" * 423)))
    chosen = replace(recipe.LAYERED, samples=8, length=512, calibration_file=str(text))
    monkeypatch.setattr(Skeleton, "attend", attend)
    monkeypatch.setattr(Skeleton, "prove", lambda self: None)
    events = quantized(source, tmp_path / "out", chosen)
    assert sum(rows for rows, _ in seen) == 2 * 2 * 464  # two blocks, before and after q, k and v are rounded
    notes = [event for event in events if isinstance(event, Note)]
    assert notes[0].values == {"samples": 3, "tokens": 464, "asked_samples": 8, "asked_length": 512}
    assert notes[1].level == "warning" and notes[1].values["tokens"] == "464"


def test_batches_are_of_equal_lengths_and_complete():
    texts = ["a" * 700, "b" * 512, "c" * 3]
    found = calibration.sequences(texts, BYTES, 512, 10_000)
    rows = [row for batch in found.batches() for row in batch.tolist()]
    assert sorted(map(len, rows)) == [3, 188, 512, 512] and found.tokens == 1215
    assert calibration.sequences(texts, BYTES, 512, 600).tokens == 600


def test_part_of_the_model_can_stay_plain(tmp_path):
    source = write_model(tmp_path / "m")
    chosen = recipe.with_rules(recipe.BEST, ("*.layers.0.*",), recipe.Choice(method="keep"))
    events = quantized(source, tmp_path / "out", chosen)
    before, after = tensors_of(source), tensors_of(tmp_path / "out")
    assert all(torch.equal(before[name], after[name]) for name in before if ".layers.0." in name)
    assert {event.block for event in done(events).values()} == {1}
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert "model.layers.0.mlp.up_proj" in config["ignore"]
    targets = {target for group in config["config_groups"].values() for target in group["targets"]}
    assert "model.layers.1.mlp.up_proj" in targets
    tokens = torch.tensor([BYTES(TEXT)["input_ids"][:60]])
    assert torch.isfinite(logits_of(tmp_path / "out", tokens)).all()


def test_plain_rounding_needs_no_calibration_and_is_measured(tmp_path):
    source = write_model(tmp_path / "m")
    events = quantized(source, tmp_path / "out", "rtn", held_tokens=600, measure_rtn=True)
    assert "Reading the calibration text" not in [event.name for event in events if isinstance(event, Stage)]
    ours, rtn = [event for event in events if isinstance(event, QualityMeasured)]
    assert (ours.name, rtn.name) == ("out", "RTN")
    assert ours.kl == pytest.approx(rtn.kl, rel=1e-3) and ours.kl > 1e-4
