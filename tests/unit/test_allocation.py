"""Bits under a target: exact on small cases, near the bound on large ones, and always a plan that can run."""

import itertools
import random

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from workbench import allocation, plan, sensitivities
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.quant_events import SensitivityMeasured
from workbench.recipe import KEEP, PRESETS, from_dict, to_dict, with_group_size, with_rules

RECIPE = with_group_size(PRESETS["layered"], 32)
OFFER = st.tuples(st.integers(1, 40), st.integers(0, 1000).map(float))


@given(st.lists(st.lists(OFFER, min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 200))
def test_no_mix_is_better_than_the_chosen_one(parts, budget):
    sums = [(sum(size for size, _ in mix), sum(damage for _, damage in mix)) for mix in itertools.product(*parts)]
    possible = [damage for size, damage in sums if size <= budget]
    chosen = allocation.allocate(parts, budget)
    if not possible:
        assert chosen is None
        return
    mix = [offers[index] for offers, index in zip(parts, chosen, strict=True)]
    assert sum(size for size, _ in mix) <= budget
    assert sum(damage for _, damage in mix) == min(possible)


def test_a_large_mix_is_within_a_hundredth_of_what_no_mix_can_beat():
    """The bound is the Lagrangian's: for any price of a byte, no mix under the budget does less damage."""
    chance = random.Random(1)
    parts = []
    for _ in range(200):
        size, damage = chance.randint(10**5, 10**7), chance.lognormvariate(0, 2)
        parts.append([(size, damage), (2 * size, damage * chance.uniform(0.001, 0.1)), (4 * size, 0.0)])
    budget = int(1.3 * sum(offers[0][0] for offers in parts))
    chosen = allocation.allocate(parts, budget)
    mix = [offers[index] for offers, index in zip(parts, chosen, strict=True)]
    assert sum(size for size, _ in mix) <= budget
    bound = max(
        sum(min(damage + price * size for size, damage in offers) for offers in parts) - price * budget
        for price in (10 ** (-10 + step / 20) for step in range(200))
    )
    assert sum(damage for _, damage in mix) <= 1.01 * bound


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return catalog.inspect(tiny.write(tmp_path_factory.mktemp("model") / "m"))


@pytest.fixture(scope="module")
def measured(model):
    """Block 1's down_proj hurts most; everything halves its error four times with four bits more."""
    return [
        SensitivityMeasured(
            linear.name, linear.block, 32, not linear.in_attention,
            {f"{bits}/32": hurt / 4**bits for bits in (2, 3, 4, 8)} | {"4/64": 1.3 * hurt / 4**4}, {},
        )
        for linear in model.linears
        for hurt in [500.0 if linear.name.endswith("1.mlp.down_proj") else 1.0]
    ]  # fmt: skip


def test_the_most_sensitive_layer_gets_the_bits_and_siblings_move_together(model, measured):
    made = allocation.for_bits(model, RECIPE, measured, 5.0)
    chosen = {entry.linear.name: entry.choice for entry in made.plan.linears}
    assert made.bits <= 5.0 and not made.plan.conflicts and not made.unmeasured
    worst = chosen["model.layers.1.mlp.down_proj"]
    assert worst.kept or worst.bits == 8
    assert made.damage < made.base_damage
    for block, (parent, roles) in itertools.product(range(2), [("self_attn", "qkv"), ("mlp", ("gate", "up"))]):
        assert len({chosen[f"model.layers.{block}.{parent}.{role}_proj"] for role in roles}) == 1


def test_the_answer_is_a_recipe_that_can_be_stored_and_edited(model, measured):
    made = allocation.for_bits(model, RECIPE, measured, 5.0)
    again = from_dict(to_dict(made.recipe))
    assert again == made.recipe and again.name == "layered-5bit"
    assert plan.make(model, again).linears == made.plan.linears
    assert len(again.rules) == len({rule.pattern for rule in again.rules}) > 0


def test_a_refined_layer_gets_no_less_than_the_recipe_where_there_is_room_for_the_recipe(model, measured):
    refined = with_group_size(PRESETS["best"], 32)
    own = allocation.average_bits(plan.make(model, refined))

    def groups(recipe, bits):
        made = allocation.for_bits(model, recipe, measured, bits)
        return {entry.choice.group_size for entry in made.plan.linears if entry.choice.bits == 4}

    assert allocation.for_bits(model, refined, measured, own).recipe.rules == refined.rules
    assert groups(refined, own + 0.2) == {32}
    assert 64 in groups(refined, own - 0.1)
    assert 64 in groups(with_group_size(PRESETS["gptq"], 32), own + 0.2)


def test_a_size_is_kept_by_the_whole_checkpoint(model, measured):
    smallest = plan.make(model, RECIPE).predicted_bytes
    for size in range(smallest, smallest + 40_000, 9_000):
        assert allocation.for_size(model, RECIPE, measured, size).plan.predicted_bytes <= size
    with pytest.raises(WorkbenchError, match="cannot be reached"):
        allocation.for_size(model, RECIPE, measured, smallest // 2)


def test_what_cannot_be_reached_is_said_with_the_least_that_can(model, measured):
    with pytest.raises(WorkbenchError, match=r"3\.9 bits on average cannot be reached: the smallest mix takes 4\."):
        allocation.for_bits(model, RECIPE, measured, 3.9)


def test_layers_that_the_recipe_keeps_stay_and_unmeasured_ones_are_named(model, measured):
    kept = with_rules(RECIPE, ("model.layers.0.mlp.down_proj",), KEEP)
    made = allocation.for_bits(model, kept, measured[:-1], 7.5)
    chosen = {entry.linear.name: entry.choice for entry in made.plan.linears}
    assert chosen["model.layers.0.mlp.down_proj"].kept
    assert made.unmeasured == (model.linears[-1].name,)
    assert chosen[model.linears[-1].name].bits == 4


def test_a_layer_whose_method_repairs_more_gets_fewer_bits(model):
    """The same damage by plain rounding everywhere; GPTQ is expected to undo nearly all of it in block 0."""
    measured = [
        SensitivityMeasured(
            linear.name, linear.block, 32, True, {"4/32": 1.0, "8/32": 0.004}, {},
            {"gptq": 0.1 if linear.block == 0 else 0.9},
        )
        for linear in model.linears
        if not linear.in_attention
    ]  # fmt: skip
    made = allocation.for_bits(model, RECIPE, measured, 5.8, (4, 8))
    assert {entry.linear.block for entry in made.plan.linears if entry.choice.bits == 8} == {1}


def test_eight_bits_are_measured_and_taken_with_coarse_groups(model):
    """A scale for each 32 weights costs half a bit, and at 8 bits buys nothing: the room goes to other layers."""
    for linear in model.linears:
        rungs = sensitivities.ladder(linear, RECIPE.attention)
        assert [rung.group_size for rung in rungs if rung.bits == 8] == [32, 128 if linear.in_features == 128 else 64]
        assert all(rung.symmetric for rung in rungs if rung.bits == 8)
    measured = [
        SensitivityMeasured(linear.name, linear.block, 32, True, {"4/32": 1.0 + at, "8/32": 0.004, "8/64": 0.004}, {})
        for at, linear in enumerate(model.linears)
    ]
    made = allocation.for_bits(model, RECIPE, measured, 6.5, (4, 8))
    raised = [entry.choice.group_size for entry in made.plan.linears if entry.choice.bits == 8]
    assert raised and set(raised) == {64}
