"""A mix of bits from a kept scan: on the command line, and the way back behind one in the recipe."""

import json
from dataclasses import replace

import pytest
import tiny as maker
from typer.testing import CliRunner

from workbench import allocation, cli, jobs, moments_kept, plan, sensitivities
from workbench.allocation import Target
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Stage
from workbench.mixed import Mixed
from workbench.progress import Progress
from workbench.quant_events import SensitivityMeasured
from workbench.recipe import KEEP, PRESETS, Choice, Rule, with_group_size

RECIPE = with_group_size(PRESETS["layered"], 32)
WORST = "model.layers.1.mlp.down_proj"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATHE_LANGUAGE", "en")


@pytest.fixture
def model(tmp_path):
    return catalog.inspect(maker.write(tmp_path / "m"))


@pytest.fixture
def measured(model):
    return tuple(
        SensitivityMeasured(
            linear.name, linear.block, 32, not linear.in_attention,
            {f"{bits}/32": hurt / 4**bits for bits in (2, 3, 4, 8)} | {"4/64": 1.3 * hurt / 4**4},
            {f"{bits}/32": 0.5 / 4**bits for bits in (2, 3, 4, 8)},
        )
        for linear in model.linears
        for hurt in [500.0 if linear.name == WORST else 1.0]
    )  # fmt: skip


def lathe(*words: object):
    return CliRunner().invoke(cli.app, list(map(str, words)))


@pytest.fixture
def kept(model, measured):
    """The scan is kept as if it had been made."""
    folder = moments_kept.folder_of(model.folder, RECIPE)
    folder.mkdir(parents=True)
    return sensitivities.keep(folder, measured)


def test_the_command_line_spreads_bits_by_the_kept_scan(model, measured, kept):
    done = lathe("plan", model.folder, "--group-size", 32, "--bits", 5, "--json")
    assert done.exit_code == 0 and jobs.listing() == [], "nothing was scanned"
    ours = allocation.propose(model, RECIPE, measured, Target(bits=5))
    theirs = {line["name"]: line["bits"] for line in json.loads(done.stdout)["linears"] if line["method"] != "keep"}
    assert theirs == {entry.linear.name: entry.choice.bits for entry in ours.plan.quantized}
    counts = " · ".join(f"{bits} bit × {count}" for bits, count in allocation.counts(ours.plan).items())
    assert counts in done.stderr and f"{ours.bits:.3f} bits on average" in done.stderr


def test_a_size_is_a_target_as_well_and_both_are_none(model, measured, kept):
    size = allocation.propose(model, RECIPE, measured, Target(bits=5)).plan.predicted_bytes
    done = lathe("plan", model.folder, "--group-size", 32, "--size", size, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["predicted_bytes"] <= size
    assert lathe("plan", model.folder, "--group-size", 32, "--size", "1GB", "--bits", 4).exit_code == 1


def test_two_and_three_bits_are_used_where_they_are_allowed(model, measured, kept):
    with pytest.raises(WorkbenchError, match="cannot be reached: the smallest mix takes"):
        allocation.propose(model, RECIPE, measured, Target(bits=4))
    made = allocation.propose(model, RECIPE, measured, Target(bits=4, low=True))
    assert made.bits <= 4 and {2, 3} & set(allocation.counts(made.plan))
    assert lathe("plan", model.folder, "--group-size", 32, "--bits", 4).exit_code == 1
    done = lathe("plan", model.folder, "--group-size", 32, "--bits", 4, "--low-bits")
    assert done.exit_code == 0 and "3 bit ×" in done.stderr


def test_a_mix_takes_no_groups_that_do_not_divide(model, measured):
    """Group 128 fits only what reads the MLP's 128 values; a quarter of those is 32, which 64 does not divide."""
    wide = with_group_size(RECIPE, 128)
    assert plan.make(model, wide).blocks
    assert not allocation.propose(model, wide, measured, Target(bits=6)).plan.blocks
    split, low = replace(RECIPE, tensor_parallel=4), Target(bits=4.7)
    alone = allocation.propose(model, RECIPE, measured, low).recipe
    assert plan.make(model, replace(alone, tensor_parallel=4)).blocks, "on one GPU groups of 64 are the better mix"
    assert not allocation.propose(model, split, measured, low).plan.blocks


def test_the_nearest_size_that_is_named_can_be_reached(model, measured):
    with pytest.raises(WorkbenchError, match="cannot be reached") as caught:
        allocation.propose(model, RECIPE, measured, Target(size=1000))
    least = round(float(caught.value.values["least"]) * 1e9)
    assert allocation.propose(model, RECIPE, measured, Target(size=least)).plan.predicted_bytes <= least


def test_below_a_mix_lies_the_recipe_it_was_made_of_with_what_was_edited_since(model, measured):
    made = allocation.propose(model, RECIPE, measured, Target(bits=6))
    mixed = Mixed(made.base, made.recipe)
    assert made.base == RECIPE and mixed.below(model, made.recipe) == RECIPE
    edit = Rule(WORST, KEEP)
    edited = replace(made.recipe, rules=(*(rule for rule in made.recipe.rules if rule.pattern != WORST), edit))
    assert mixed.below(model, edited) == replace(RECIPE, rules=(edit,))
    assert mixed.below(model, replace(edited, samples=7)) == replace(RECIPE, rules=(edit,), samples=7)
    other = replace(RECIPE, rules=(Rule(WORST, Choice(bits=8)),))
    for unrelated in (PRESETS["awq"], other):
        assert mixed.below(model, unrelated) == unrelated


def test_scans_are_kept_by_layer_and_grid(model, measured, kept):
    """Another group or symmetry of one layer asks for that layer alone; bits, method and keeping ask for none."""
    everything = sensitivities.kept(model, RECIPE)
    assert list(everything.found.values()) == list(measured) and not everything.missing
    for choice in (Choice(bits=8, group_size=32, method="rtn"), KEEP):
        assert not sensitivities.kept(model, replace(RECIPE, rules=(Rule(WORST, choice),))).missing
    coarse = replace(RECIPE, rules=(Rule(WORST, Choice(group_size=64)),))
    assert sensitivities.kept(model, coarse).missing == (WORST,)
    assert sensitivities.kept(
        model, replace(RECIPE, rules=(Rule(WORST, Choice(group_size=32, symmetric=False)),))
    ).missing
    again = SensitivityMeasured(WORST, 1, 64, True, {f"{bits}/64": 1.0 for bits in (2, 3, 4, 8)}, {})
    sensitivities.keep(kept.parent, [again], ["model.layers.0.mlp.up_proj"])
    assert sensitivities.kept(model, coarse).found[WORST] == again and not sensitivities.kept(model, coarse).missing
    assert sensitivities.kept(model, RECIPE) == replace(everything, unreached=("model.layers.0.mlp.up_proj",))
    kept.write_text("[]")
    assert len(sensitivities.kept(model, RECIPE).missing) == len(measured), "what cannot be read is measured anew"


def test_what_is_left_of_a_stage_follows_its_pace():
    progress = Progress()
    progress.apply(Stage("Measuring the sensitivity", 10), at_s=100.0)
    assert progress.left_s(105.0) is None
    progress.apply(Advanced(2), at_s=110.0)
    assert progress.left_s(110.0) == 40.0 and progress.left_s(114.0) == 36.0
    progress.apply(Stage("Weighing the outputs"), at_s=150.0)
    assert progress.left_s(151.0) is None
