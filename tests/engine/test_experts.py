"""Experts: counted, never starved, packed under the names that vLLM loads; the router stays bit for bit (H10)."""

import json
import re
from dataclasses import replace

import pytest
import torch
from family_models import write_family
from quantization_models import SCALED, quantized
from safetensors.torch import load_file, save_file

from workbench import plan, recipe
from workbench.catalog import folder as catalog
from workbench.events import Note
from workbench.quant_events import ModuleDone


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["mixtral", "qwen3_moe", "deepseek_v3"])
def starved(request, tmp_path_factory):
    """F-MOE with a text of one word 200 times: source, result, events."""
    folder = tmp_path_factory.mktemp(request.param)
    more = {"mixtral": {"num_local_experts": 8, "num_experts_per_tok": 1}, "qwen3_moe": {"num_experts": 8}}
    source = write_family(folder / "m", request.param, **more.get(request.param, {}))
    text = folder / "one word.txt"
    text.write_text("lamp " * 200)  # 999 bytes without the last space, each a token
    chosen = replace(SCALED, calibration_file=str(text))
    return source, folder / "out", quantized(source, folder / "out", chosen, threads=1)


def tensors_of(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def test_tokens_are_counted_for_each_expert(starved):
    source, _, events = starved
    experts = [event for event in events if isinstance(event, ModuleDone) and ".experts." in event.name]
    assert experts and all(event.tokens is not None and not event.fallback for event in experts)
    gates = [event for event in experts if event.block == 1 and re.search(r"gate_proj|w1", event.name)]
    config = json.loads((source / "config.json").read_text())
    assert sum(event.tokens for event in gates) == 999 * config["num_experts_per_tok"]
    assert min(event.tokens for event in gates) < 512


def test_starved_experts_are_named_with_their_tokens(starved):
    _, _, events = starved
    notes = [event for event in events if isinstance(event, Note) and "experts got fewer" in event.message]
    counts = {
        (event.block, int(re.search(r"experts\.(\d+)", event.name)[1])): event.tokens
        for event in events
        if isinstance(event, ModuleDone) and ".experts." in event.name
    }
    few = {place for place, tokens in counts.items() if tokens < 512}
    named = {
        (note.values["block"], int(number))
        for note in notes
        for number in re.findall(r"(\d+) \(\d+\)", note.values["experts"])
    }
    assert few == named and few


def test_every_expert_is_packed_and_the_router_is_bit_equal(starved):
    source, target, events = starved
    before, after = tensors_of(source), tensors_of(target)
    experts = [name for name in before if ".experts." in name]
    assert experts and not any(name in after for name in experts)
    for name in experts:
        scale = after[f"{name.removesuffix('.weight')}.weight_scale"]
        assert torch.isfinite(scale).all() and (scale != 0).all()
        assert f"{name.removesuffix('.weight')}.weight_packed" in after
    routers = [name for name in before if re.search(r"\.gate\.(weight|e_score_correction_bias)$", name)]
    assert routers and all(torch.equal(before[name], after[name]) for name in routers)
    told = [event.values["modules"] for event in events if isinstance(event, Note) and "No AWQ scales" in event.message]
    assert len(told) >= 1 and "experts.*.gate_proj" in " ".join(told)


def test_the_configuration_names_experts_by_one_pattern(starved):
    _, target, _ = starved
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    targets = [each for group in config["config_groups"].values() for each in group["targets"]]
    assert all(not re.search(r"experts\.\d", each) for each in targets)
    names = {name.removesuffix(".weight_packed") for name in tensors_of(target) if name.endswith("weight_packed")}
    assert all(any(re.match(each.removeprefix("re:"), name) for each in targets) for name in names)
    # vLLM before 0.27 looks Mixtral's experts up by other names than those on disk.
    for wanted in {f"{name.rpartition('experts.')[0]}experts.0" for name in names if ".experts." in name}:
        asked = [f"{wanted}.{leaf}" for leaf in ("gate_proj", "up_proj", "down_proj")]
        assert all(any(re.match(each.removeprefix("re:"), name) for each in targets) for name in asked)


def test_the_plan_says_where_experts_can_run(starved):
    source, _, _ = starved
    made = plan.make(catalog.inspect(source), recipe.LAYERED)
    assert not made.conflicts and "experts_on_cpu" in [each.code for each in made.warnings]
    kept = recipe.with_rules(recipe.LAYERED, ("*.experts.*",), recipe.KEEP)
    assert "experts_on_cpu" not in [each.code for each in plan.make(catalog.inspect(source), kept).warnings]


def test_experts_in_one_tensor_are_refused_before_anything_loads(tmp_path):
    source = write_family(tmp_path / "m", "mixtral")
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.0.block_sparse_moe.experts.gate_up_proj"] = torch.zeros(4, 8, 8, dtype=torch.bfloat16)
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    model = catalog.inspect(source)
    assert not model.can_quantize and "gate_up_proj" in str(model.blocking("quantize")[0].sentence)
