"""Families other than Llama's, by structure: quantized, read back by transformers, and what cannot be is refused."""

import json
from dataclasses import replace

import pytest
import torch
from family_models import SETTINGS, write_family
from quantization_models import SCALED, TEXT, byte_tokenizer, quantized
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from workbench import plan, recipe
from workbench.catalog import folder as catalog
from workbench.events import Finished, Note
from workbench.quant_events import ModuleDone
from workbench.quantization.blocks import Skeleton
from workbench.quantization.moments import Moments
from workbench.quantization.turn import Turn
from workbench.quantization.turns import turn_of

TOKENS = torch.tensor([byte_tokenizer()(TEXT)["input_ids"][:60]])
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads on tiny matrices mostly wait for each other where other programs run too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors_of(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def done(events):
    return {event.name: event for event in events if isinstance(event, ModuleDone)}


@torch.no_grad()
def ours(folder):
    """The logits of a folder, plain or packed, by our own reading of it."""
    skeleton = Skeleton(folder, CPU)
    skeleton.prove()
    (hidden,) = skeleton.embed([TOKENS])
    for index in range(len(skeleton)):
        hidden = skeleton.forward(skeleton.load(index), hidden)
    norm, head = skeleton.last()
    return skeleton.logits(norm(hidden) @ head.T)


@torch.no_grad()
def theirs(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")(TOKENS).logits


@pytest.mark.parametrize("family", SETTINGS)
def test_a_family_is_read_as_transformers_reads_it(tmp_path, family):
    source = write_family(tmp_path / family, family)
    right = theirs(source)
    assert (ours(source) - right).abs().max() < 1e-3 * right.abs().max()
    assert catalog.inspect(source).can_quantize


@pytest.mark.parametrize("chosen", ["layered", "scaled", "rtn"])
@pytest.mark.parametrize("family", SETTINGS)
def test_a_family_is_quantized(tmp_path, family, chosen):
    source = write_family(tmp_path / family, family)
    wanted = SCALED if chosen == "scaled" else recipe.PRESETS[chosen]
    events = quantized(source, tmp_path / "out", wanted, threads=1)
    assert isinstance(events[-1], Finished)
    planned = plan.make(catalog.inspect(source), wanted)
    modules = done(events)
    assert modules.keys() == {entry.linear.name for entry in planned.linears}
    assert not any(module.fallback for module in modules.values())
    before, after = tensors_of(source), tensors_of(tmp_path / "out")
    plain = {name for name in before if name.removesuffix(".weight") not in modules}
    assert plain == {name for name in after if ".weight_" not in name}
    assert all(f"{name}.weight_packed" in after for name in modules)
    right = ours(source)
    assert (ours(tmp_path / "out") - right).std() < (0.6 if chosen == "rtn" else 0.5) * right.std()
    moved = [event for event in events if isinstance(event, Note) and "stored in 16 bit" in event.message]
    # One norm serves all of Cohere's block, so that it can take scales only where attention and MLP both ask for them.
    assert len(moved) == (chosen == "scaled" or (chosen == "layered" and family != "cohere"))
    assert all(0 < note.values["percent"] < 50 for note in moved)
    if chosen == "rtn":
        return
    errors = [module.output_error / module.plain_output_error for module in modules.values()]
    assert sum(errors) / len(errors) < 0.9 and max(errors) < 1.2


def test_of_a_model_that_sees_the_text_part_is_quantized_and_the_rest_kept(tmp_path):
    text = SETTINGS["gemma3_text"] | {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 1024,
        "initializer_range": 0.15, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
    }  # fmt: skip
    vision = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    config = Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=255, boi_token_index=254
    )
    source = tmp_path / "sees"
    Gemma3ForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(source)
    byte_tokenizer().save_pretrained(source)
    events = quantized(source, tmp_path / "out", "best", threads=1)
    before, after = tensors_of(source), tensors_of(tmp_path / "out")
    seeing = [name for name in before if "vision" in name or "projector" in name]
    assert seeing and all(torch.equal(before[name], after[name]) for name in seeing)
    assert len(done(events)) == 14 and all("vision" not in name for name in done(events))
    model, report = Gemma3ForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    with torch.no_grad():
        right = ours(tmp_path / "out")
        assert (model(TOKENS).logits.float() - right).std() < 0.05 * right.std()  # it computes in bfloat16


@pytest.mark.parametrize("family", SETTINGS)
def test_scales_alone_change_nothing(tmp_path, family, monkeypatch):
    """H11 b and H12: before rounding the folded model says what its source says."""
    source = write_family(tmp_path / family, family)
    right = ours(source)
    folded = []

    def fold_only(self, key, moments):
        folded.append(self._scales.get(key))
        return iter(())

    monkeypatch.setattr(Turn, "_quantize", fold_only)
    skeleton = Skeleton(source, CPU)
    skeleton.prove()
    planned = {entry.linear.name: entry for entry in plan.make(catalog.inspect(source), SCALED).quantized}
    hidden = skeleton.embed([TOKENS])
    for index in range(len(skeleton)):
        own = {name: entry for name, entry in planned.items() if entry.linear.block == index}
        for _ in turn_of(skeleton, index, own, hidden, torch.bfloat16, []).run():
            pass
    norm, head = skeleton.last()
    with torch.no_grad():
        left = skeleton.logits(norm(hidden[0]) @ head.T)
    assert sum(scale is not None and scale.max() / scale.min() > 1.2 for scale in folded) >= 6
    assert (left - right).abs().max() < 1e-3


@pytest.mark.parametrize("family", ["phi3", "gemma2", "deepseek_v2"])
def test_dead_channels_and_zero_rows(tmp_path, family):
    """H09, in other families' words."""

    def kill(model):
        layer = model.model.layers[0]
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.weight[3] = -1 if family == "gemma2" else 0
        for linear in layer.modules():
            if isinstance(linear, torch.nn.Linear):
                linear.weight[7] = 0

    source = write_family(tmp_path / "m", family, change=kill)
    for chosen in ("layered", "best"):
        quantized(source, tmp_path / chosen, chosen, threads=1)
        tensors = tensors_of(tmp_path / chosen)
        scales = [tensor for name, tensor in tensors.items() if name.endswith("weight_scale")]
        assert all(torch.isfinite(scale).all() and (scale != 0).all() for scale in scales)
        block = Skeleton(tmp_path / chosen, CPU).load(0)
        assert not any(linear.weight[7].any() for linear in block.modules() if isinstance(linear, torch.nn.Linear))


def test_every_real_token_is_used_once_by_structure_too(tmp_path):
    """H16: three texts of 5, 36 and 423 tokens, no pad token, asked for 8 × 512."""
    source = write_family(tmp_path / "m", "phi3")
    text = tmp_path / "own.txt"
    text.write_text("\n<|document|>\n".join(("x" * 5, "y" * 36, "z" * 423)))
    chosen = replace(recipe.BEST, samples=8, length=512, calibration_file=str(text))
    events = quantized(source, tmp_path / "out", chosen, threads=1)
    assert {module.tokens for module in done(events).values()} == {464}
    together, single = Moments(16, CPU), Moments(16, CPU)
    rows = torch.randn(464, 16)
    together.add(rows)
    for row in rows.split((5, 36, 423)):
        single.add(row)
    assert torch.allclose(together.matrix, single.matrix, atol=1e-4)


def test_static_order_of_columns_reaches_no_file(tmp_path):
    """H15: columns are stored in their own order, and a whole row has no order at all."""
    source = write_family(tmp_path / "m", "glm4")
    errors = {}
    for order, size in (("static", 32), ("none", 32), ("static", -1)):
        choice = recipe.Choice(method="gptq", group_size=size, order=order)
        chosen = replace(recipe.LAYERED, attention=choice, mlp=choice)
        target = tmp_path / f"{order} {size}"
        errors[order, size] = [
            module.output_error for module in done(quantized(source, target, chosen, threads=1)).values()
        ]
        config = json.loads((target / "config.json").read_text())["quantization_config"]
        weights = [group["weights"] for group in config["config_groups"].values()]
        assert all(each["actorder"] is None for each in weights)
        assert {each["strategy"] for each in weights} == {"group" if size > 0 else "channel"}
    pairs = zip(errors["static", 32], errors["none", 32], strict=True)
    assert sum(ordered for ordered, _ in pairs) <= 1.05 * sum(errors["none", 32])
