"""Families other than Llama's, by structure: quantized, read back by transformers, and what cannot be is refused."""

import json

import pytest
import torch
from family_models import SETTINGS, write_family
from quantization_models import TEXT, byte_tokenizer, quantized
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from workbench import plan, recipe
from workbench.catalog import folder as catalog
from workbench.events import Finished, ModuleDone
from workbench.quantization.blocks import Skeleton

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


@pytest.mark.parametrize("chosen", ["layered", "best", "rtn"])
@pytest.mark.parametrize("family", SETTINGS)
def test_a_family_is_quantized(tmp_path, family, chosen):
    source = write_family(tmp_path / family, family)
    events = quantized(source, tmp_path / "out", chosen, threads=1)
    assert isinstance(events[-1], Finished)
    planned = plan.make(catalog.inspect(source), recipe.PRESETS[chosen])
    modules = done(events)
    assert modules.keys() == {entry.linear.name for entry in planned.linears}
    assert not any(module.fallback for module in modules.values())
    before, after = tensors_of(source), tensors_of(tmp_path / "out")
    plain = {name for name in before if name.removesuffix(".weight") not in modules}
    assert plain == {name for name in after if ".weight_" not in name}
    assert all(f"{name}.weight_packed" in after for name in modules)
    right = ours(source)
    assert (ours(tmp_path / "out") - right).std() < (0.6 if chosen == "rtn" else 0.5) * right.std()
    if chosen == "rtn":
        return
    errors = [module.output_error / module.plain_output_error for module in modules.values()]
    assert sum(errors) / len(errors) < 0.9 and max(errors) < 1.2
    json.loads((tmp_path / "out/config.json").read_text())
