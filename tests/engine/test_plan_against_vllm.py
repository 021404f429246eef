"""H13: what a plan accepts, vLLM looks up without complaint; what it refuses would have broken there."""

from dataclasses import replace

import pytest
import torch

from workbench import expert_rows
from workbench import recipe as recipes
from workbench.catalog.folder import inspect
from workbench.plan import make
from workbench.quantization.checkpoint import quantization_config
from workbench.recipe import KEEP, LAYERED, PRESETS, WHOLE_ROW, Choice, Rule

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


@pytest.fixture(scope="module")
def utils():
    """vLLM's helpers for names in compressed-tensors configurations."""
    from vllm.model_executor.layers.quantization.compressed_tensors import utils

    return utils


def looked_up(utils, config: dict) -> dict[str, str | None]:
    """Each layer as vLLM has it → the target that it takes, None where it is ignored."""
    from torch import nn

    targets = [target for group in config["config_groups"].values() for target in group["targets"]]
    found = {}
    for block in range(2):
        for leaf in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"):
            name = f"model.layers.{block}.{leaf}"
            if utils.should_ignore_layer(name, ignore=config["ignore"], fused_mapping=FUSED):
                found[name] = None
            else:
                found[name] = utils.find_matched_target(name, nn.Linear(1, 1), targets, FUSED)
                assert found[name], name
    return found


RULES = {
    "o kept": Rule("*.o_proj", KEEP),
    "one down kept": Rule("model.layers.1.mlp.down_proj", KEEP),
    "one down in 8 bit": Rule("model.layers.0.mlp.down_proj", Choice(bits=8)),
    "a block kept": Rule("model.layers.0.*", KEEP),
    "whole rows": Rule("*.mlp.*", Choice(group_size=WHOLE_ROW)),
}


RECIPES = (*PRESETS.values(), *(replace(LAYERED, name=name, rules=(rule,)) for name, rule in RULES.items()))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_accepted_plans(utils, tiny, recipe):
    plan = make(inspect(tiny), recipe)
    assert not plan.blocks
    config = quantization_config(plan)
    kept = {entry.linear.name for entry in plan.linears if entry.choice.kept}
    for name, target in looked_up(utils, config).items():
        parent, _, leaf = name.rpartition(".")
        assert (target is None) == (f"{parent}.{FUSED.get(leaf, [leaf])[0]}" in kept), name
    for group in config["config_groups"].values():  # H15: an order is named nowhere, with groups or without
        assert group["weights"]["actorder"] is None


def test_the_refused_plan_would_have_broken(utils, tiny):
    plan = make(inspect(tiny), recipes.with_rules(LAYERED, ("model.layers.1.self_attn.k_proj",), KEEP))
    assert plan.blocks
    with pytest.raises(ValueError, match="different quantization schemes"):
        looked_up(utils, quantization_config(plan))
    for fix in plan.conflicts[0].fixes:
        looked_up(utils, quantization_config(make(inspect(tiny), fix.recipe)))


@pytest.mark.parametrize(("bits", "symmetric"), [(2, True), (3, True), (4, True), (8, True), (3, False), (4, False)])
@pytest.mark.parametrize("width", [2048, 2880])
def test_whole_rows_of_experts_are_taken_where_marlin_does(bits, symmetric, width):
    """Every other of vLLM's kernels for experts on NVIDIA GPUs is behind an assertion that there are groups."""
    from types import SimpleNamespace

    from vllm.model_executor.layers.fused_moe.experts.marlin_moe import MarlinExperts
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import compressed_tensors_wNa16 as wna16
    from vllm.model_executor.layers.quantization.utils import marlin_utils
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys

    types = wna16.WNA16_SUPPORTED_TYPES_MAP if symmetric else wna16.WNA16_ZP_SUPPORTED_TYPES_MAP
    rows = keys.ScaleDesc(dtype=torch.float16, static=True, group_shape=keys.GroupShape.PER_CHANNEL)
    scale = {4: keys.kInt4StaticGroupScale, 8: keys.kInt8StaticGroupScale}.get(bits, rows)
    config = SimpleNamespace(hidden_dim=width, intermediate_size_per_partition_unpadded=1024)
    theirs = MarlinExperts._supports_quant_scheme(keys.QuantKey(types[bits], scale, symmetric=symmetric), None)
    theirs = theirs and marlin_utils.check_moe_marlin_supports_config(config, -1, allow_tile_padding=True)
    assert expert_rows.taken(Choice(bits=bits, symmetric=symmetric, group_size=WHOLE_ROW), width) == theirs
