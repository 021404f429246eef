"""Rules of a recipe against a model: what they match, what wins, and what is refused."""

import time
from dataclasses import replace

import numpy as np
import pytest
import tiny as maker

from workbench import matching, reach
from workbench import recipe as recipes
from workbench.catalog.folder import inspect
from workbench.plan import make
from workbench.recipe import KEEP, LAYERED, PRESETS, WHOLE_ROW, Choice, Rule

EIGHT = Choice(bits=8)


@pytest.fixture
def model(tiny):
    return inspect(tiny)


def codes(found) -> list[str]:
    return [each.code for each in found]


def with_rules(*rules: tuple[str, Choice]):
    return replace(LAYERED, rules=tuple(Rule(pattern, choice) for pattern, choice in rules))


def bits(plan, leaf: str) -> list[int]:
    return [0 if entry.choice.kept else entry.choice.bits for entry in plan.linears if entry.linear.leaf == leaf]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_on_a_plain_model(model, name):
    plan = make(model, PRESETS[name])
    assert not plan.blocks and plan.warnings == () and len(plan.quantized) == (8 if name == "glm" else 14)


def test_the_plan_lists_what_each_pattern_matched(model):
    plan = make(model, with_rules(("*.o_proj", EIGHT), ("model.layers.1.self_attn.o_proj", KEEP), ("nothing.*", EIGHT)))
    wide, narrow, nothing = plan.matches
    assert wide.modules == ("model.layers.0.self_attn.o_proj", "model.layers.1.self_attn.o_proj") and wide.holds == 1
    assert narrow.modules == ("model.layers.1.self_attn.o_proj",) and narrow.holds == 1
    assert nothing.modules == () and nothing.holds == 0
    assert bits(plan, "o_proj") == [8, 0]


@pytest.mark.parametrize("pattern", ["*.q_porj", "*.experts.*", "model.layers.77.*"])
def test_a_pattern_that_reaches_nothing_is_refused_and_can_be_left_out(model, pattern):
    plan = make(model, with_rules((pattern, KEEP), ("*.o_proj", EIGHT)))
    (conflict,) = plan.conflicts
    assert conflict.code == "pattern_unmatched" and pattern in str(conflict.sentence)
    left = make(model, conflict.fixes[-1].recipe)
    assert not left.blocks and [rule.pattern for rule in left.recipe.rules] == ["*.o_proj"]


def test_the_rules_of_a_larger_model_are_one_sentence_and_one_way_out(model):
    rules = [(f"model.layers.{number}.mlp.down_proj", EIGHT) for number in range(40)]
    plan = make(model, with_rules(*rules))
    (conflict,) = plan.conflicts
    assert "38 patterns such as model.layers.2.mlp.down_proj" in str(conflict.sentence)
    (fix,) = conflict.fixes
    fixed = make(model, fix.recipe)
    assert not fixed.blocks and len(fixed.recipe.rules) == 2 and bits(fixed, "down_proj") == [8, 8]


def test_a_full_name_wins_over_patterns_wherever_it_stands(model):
    rules = (("model.layers.1.mlp.down_proj", KEEP), ("*.down_proj", EIGHT))
    for order in (rules, rules[::-1]):
        plan = make(model, with_rules(*order))
        assert not plan.blocks and bits(plan, "down_proj") == [8, 0]


def test_two_patterns_on_one_layer_are_refused_with_both_ways_out(model):
    plan = make(model, with_rules(("*.mlp.*", EIGHT), ("*.1.mlp.*", KEEP)))
    (conflict,) = plan.conflicts
    assert conflict.code == "rules_overlap" and len(conflict.modules) == 3
    assert "*.mlp.*" in str(conflict.sentence) and "*.1.mlp.*" in str(conflict.sentence)
    later, earlier = (make(model, fix.recipe) for fix in conflict.fixes)
    assert not later.blocks and bits(later, "up_proj") == [8, 0]
    assert not earlier.blocks and bits(earlier, "up_proj") == [8, 8]


def test_the_same_rule_twice(model):
    plan = make(model, with_rules(("*.down_proj", EIGHT), ("*.down_proj", KEEP)))
    (conflict,) = plan.conflicts
    later, earlier = (make(model, fix.recipe) for fix in conflict.fixes)
    assert bits(later, "down_proj") == [0, 0] and bits(earlier, "down_proj") == [8, 8]
    assert not (later.blocks or earlier.blocks)
    exact = make(model, with_rules(*[("model.layers.0.mlp.down_proj", choice) for choice in (EIGHT, KEEP)]))
    assert codes(exact.conflicts) == ["rules_overlap"]


def test_patterns_that_overlap_and_agree_are_no_conflict(model):
    assert not make(model, with_rules(("*.mlp.*", EIGHT), ("*.1.*.down_proj", EIGHT))).blocks


@pytest.mark.parametrize(("pattern", "tied", "word"), [
    ("lm_head", True, "head"), ("lm_head", False, "linear layers"), ("*embed_tokens", True, "linear layers"),
    ("*norm*", False, "linear layers"),
])  # fmt: skip
def test_head_embeddings_and_norms_are_never_quantized(write_tiny, pattern, tied, word):
    model = inspect(write_tiny(tied=tied))
    plan = make(model, with_rules((pattern, EIGHT)))
    (conflict,) = plan.conflicts
    assert conflict.code == "never_quantized" and pattern in str(conflict.sentence) and word in str(conflict.sentence)
    assert make(model, conflict.fixes[0].recipe).conflicts == ()
    assert make(model, with_rules((pattern, KEEP))).conflicts == () == make(model, with_rules((pattern, KEEP))).warnings
    assert len(plan.quantized) == 14


@pytest.mark.parametrize("symmetric", [True, False])
def test_bits_that_vllm_does_not_serve_everywhere_are_said(model, symmetric):
    for low in (2, 3):
        plan = make(model, with_rules(("*.down_proj", Choice(bits=low, symmetric=symmetric))))
        (warning,) = plan.warnings
        assert not plan.blocks and warning.code == f"bits_{low}" and str(low) in str(warning.sentence)
        fixed = make(model, warning.fixes[0].recipe)
        assert fixed.warnings == () and bits(fixed, "down_proj") == [4, 4] and not fixed.blocks


def test_a_type_that_cannot_be_quantized_is_refused(model):  # H04
    tensors = tuple(
        replace(tensor, dtype="F8_E4M3") if tensor.name.endswith("1.mlp.down_proj.weight") else tensor
        for tensor in model.tensors
    )
    odd = replace(model, tensors=tensors)
    (conflict,) = make(odd, LAYERED).conflicts
    assert conflict.code == "dtype" and "F8_E4M3" in str(conflict.sentence)
    assert conflict.modules == ("model.layers.1.mlp.down_proj",)
    assert not make(odd, conflict.fixes[0].recipe).blocks


def test_a_quantized_source_is_refused_before_anything_else(write_tiny):  # H03
    packed = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
    plan = make(inspect(write_tiny(config={"quantization_config": packed})), with_rules(("lm_head", EIGHT)))
    assert codes(plan.conflicts) == ["already_quantized"] and "AWQ" in str(plan.conflicts[0].sentence)


def test_a_choice_for_all_blocks_takes_its_layers_from_wider_rules(model):
    names = [linear.name for linear in model.linears]
    recipe = with_rules(("*.mlp.*", EIGHT), ("model.layers.0.mlp.down_proj", KEEP))
    placed = matching.place(recipe, ("model.layers.*.mlp.down_proj",), Choice(bits=4), names)
    plan = make(model, placed)
    assert not plan.blocks and bits(plan, "down_proj") == [4, 4] and bits(plan, "up_proj") == [8, 8]
    one = matching.place(placed, ("model.layers.1.mlp.down_proj",), KEEP, names)
    assert bits(make(model, one), "down_proj") == [4, 0] and not make(model, one).blocks


@pytest.mark.parametrize("pattern", ["*.q_proj", "model.*", "*", "*q_pr?j", "model.layers.[01].*", "x.*y", "a"])
def test_patterns_match_as_fnmatch_does(pattern):
    from fnmatch import fnmatchcase

    names = ["model.layers.0.q_proj", "model.layers.11.k_proj", "x.y", "x.z.y", "", "a"]
    assert [bool(matching.matcher(pattern)(name)) for name in names] == [fnmatchcase(n, pattern) for n in names]


def experts(path, count: int = 3):
    """F-TINY with the MLP of both blocks as experts and a router."""
    values = maker.tensors()
    for layer in range(2):
        at = f"model.layers.{layer}.mlp"
        parts = {leaf: values.pop(f"{at}.{leaf}.weight") for leaf in ("gate_proj", "up_proj", "down_proj")}
        for number in range(count):
            values |= {f"{at}.experts.{number}.{leaf}.weight": weight for leaf, weight in parts.items()}
        values[f"{at}.gate.weight"] = np.zeros((count, 64), np.float32)
    maker.save(path / "model.safetensors", values)
    model = inspect(path)
    return replace(model, problems=tuple(each for each in model.problems if "quantize" not in each.blocks))


def test_experts_of_a_layer_agree_or_are_refused(write_tiny):
    model = experts(write_tiny())
    assert not make(model, LAYERED).blocks
    plan = make(model, with_rules(("model.layers.1.mlp.experts.2.down_proj", EIGHT)))
    (conflict,) = plan.conflicts
    assert conflict.code == "siblings_differ" and len(conflict.modules) == 9
    assert "model.layers.1.mlp" in str(conflict.sentence) and "bits" in str(conflict.sentence)
    for fix in conflict.fixes:
        assert not make(model, fix.recipe).blocks
    layer = make(model, with_rules(("model.layers.1.mlp.experts.*", EIGHT)))
    assert not layer.blocks
    whole = make(model, with_rules(("*.down_proj", replace(LAYERED.mlp, symmetric=False))))
    assert codes(whole.conflicts) == ["siblings_differ"] and len(whole.conflicts[0].modules) == 18


def test_a_choice_for_one_expert_reaches_all_of_its_block(write_tiny):
    model = experts(write_tiny())
    name = "model.layers.1.mlp.experts.0.up_proj"
    (pattern,) = reach.patterns(model.linears, name, everywhere=False)
    assert pattern == "model.layers.1.mlp.experts.*"
    assert reach.patterns(model.linears, name, everywhere=True) == ("model.layers.*.mlp.experts.*",)
    assert len(reach.siblings(model.linears, name)) == 9
    assert not make(model, recipes.with_rules(LAYERED, (pattern,), KEEP)).blocks


@pytest.mark.parametrize("choice", [Choice(bits=3), EIGHT, Choice(symmetric=False)])
def test_whole_rows_of_experts_that_vllm_does_not_load_are_refused(write_tiny, choice):
    """Hidden size 64 is no multiple of 128, so none of them; a group size or keeping them is the way out."""
    model = experts(write_tiny())
    plan = make(model, with_rules(("*.experts.*", replace(choice, group_size=WHOLE_ROW))))
    (conflict,) = plan.conflicts
    assert conflict.code == "expert_rows" and len(conflict.modules) == 18
    grouped, kept = (make(model, fix.recipe) for fix in conflict.fixes)
    assert not grouped.blocks and not kept.blocks
    assert {entry.choice for entry in grouped.linears if entry.linear.expert} == {replace(choice, group_size=64)}


def test_latent_projections_that_are_fused_agree(model):
    """DeepSeek's q_a_proj and kv_a_proj_with_mqa are one matrix in vLLM."""
    renamed = {"q_proj": "q_a_proj", "k_proj": "kv_a_proj_with_mqa", "v_proj": "kv_b_proj"}
    linears, tensors = [], model.tensors
    for linear in model.linears:
        leaf = renamed.get(linear.leaf)
        linears.append(replace(linear, name=f"{linear.parent}.{leaf}", role="other") if leaf else linear)
    for old, new in renamed.items():
        tensors = tuple(replace(tensor, name=tensor.name.replace(old, new)) for tensor in tensors)
    latent = replace(model, linears=tuple(linears), tensors=tensors)
    assert not make(latent, LAYERED).blocks
    assert not make(latent, with_rules(("*.kv_b_proj", KEEP))).blocks
    (conflict,) = make(latent, with_rules(("*.q_a_proj", KEEP))).conflicts
    assert conflict.code == "siblings_differ" and len(conflict.modules) == 4


def test_the_pattern_that_decides_for_each_layer_is_named(model):
    plan = make(model, with_rules(("*.o_proj", EIGHT), ("model.layers.1.self_attn.o_proj", KEEP)))
    ruled = matching.deciding(plan.matches)
    assert ruled == {
        "model.layers.0.self_attn.o_proj": "*.o_proj",
        "model.layers.1.self_attn.o_proj": "model.layers.1.self_attn.o_proj",
    }


def test_thousands_of_rules_for_one_layer_are_planned_at_once(model):
    """Each was compared with each: 10,000 took a minute and a half."""
    patterns = [f"*{'?' * (number % 9)}_proj" for number in range(10_000)]
    began = time.process_time()
    plan = make(model, with_rules(*((pattern, EIGHT) for pattern in patterns)))
    assert not plan.blocks and bits(plan, "up_proj") == [8, 8]
    assert time.process_time() - began < 5
