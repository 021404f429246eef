"""What is prepared for one model, and what of it goes on to the next."""

from dataclasses import replace

from workbench import recipes_kept
from workbench.catalog.folder import inspect
from workbench.draft import Draft
from workbench.recipe import LAYERED, Choice, Rule

EIGHT = Choice(bits=8)
MIX = replace(
    LAYERED, name="layered-4.5bit", rules=(Rule("model.layers.0.mlp.down_proj", EIGHT), Rule("*.o_proj", EIGHT))
)


def test_rules_for_single_layers_stay_with_their_model(write_tiny, tmp_path):
    draft = Draft(tmp_path)
    draft.take_model(inspect(write_tiny("a")))
    draft.take_recipe(MIX)
    draft.take_model(inspect(write_tiny("a")))
    assert draft.recipe == MIX  # the same model, whose files changed
    draft.take_model(inspect(write_tiny("b")))
    assert draft.recipe == replace(LAYERED, rules=MIX.rules[1:])
    draft.take_recipe(replace(MIX, rules=MIX.rules[:1]))
    draft.take_model(inspect(write_tiny("c")))
    assert draft.recipe == LAYERED


def test_a_recipe_that_the_user_kept_goes_on_as_it_was_kept(write_tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    kept = recipes_kept.keep(MIX, "mine")
    draft = Draft(tmp_path)
    draft.take_model(inspect(write_tiny("a")))
    draft.take_recipe(replace(kept, samples=7))
    draft.take_model(inspect(write_tiny("b")))
    assert draft.recipe == kept
