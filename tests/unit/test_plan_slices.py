"""Plans for a result that several GPUs serve together."""

from dataclasses import replace

import pytest

from workbench.catalog.folder import inspect
from workbench.plan import make
from workbench.recipe import LAYERED, WHOLE_ROW, Choice, Rule, with_group_size


@pytest.fixture
def model(tiny):
    """4 heads of 32 over 2 key/value heads, hidden 64, intermediate 128."""
    return inspect(tiny)


def split(recipe, ranks):
    return replace(recipe, tensor_parallel=ranks)


def test_automatic_groups_fit_the_slices(model):
    plan = make(model, split(LAYERED, 2))
    assert not plan.blocks
    for entry in plan.quantized:
        inputs = entry.linear.in_features // (2 if entry.linear.role in ("o", "down") else 1)
        assert inputs % entry.choice.group_size == 0


def test_a_group_across_the_cut_is_refused_with_a_size_that_fits(model):
    recipe = with_group_size(LAYERED, 64)
    assert not make(model, recipe).blocks
    assert not make(model, split(recipe, 2)).blocks
    (conflict,) = make(model, split(recipe, 4)).conflicts
    leaves = {name.rpartition(".")[2] for name in conflict.modules}
    assert conflict.code == "slice_group" and leaves == {"o_proj", "down_proj"}
    assert "4 GPUs" in str(conflict.sentence) and "32 inputs" in str(conflict.sentence)
    fitted, one = (make(model, fix.recipe) for fix in conflict.fixes)
    assert not fitted.blocks
    assert {(entry.choice.group_size, entry.linear.leaf in leaves) for entry in fitted.linears} == {
        (32, True), (64, False),
    }  # fmt: skip
    assert not one.blocks and one.recipe.tensor_parallel == 1


def test_heads_that_do_not_divide(model):
    (conflict,) = make(model, split(LAYERED, 3)).conflicts
    assert conflict.code == "ranks" and str(model.heads) in str(conflict.sentence)
    assert [fix.recipe.tensor_parallel for fix in conflict.fixes] == [2, 1]
    for fix in conflict.fixes:
        assert not [each for each in make(model, fix.recipe).conflicts if each.code == "ranks"]


def test_fewer_key_value_heads_than_gpus_are_repeated(model):
    assert model.kv_heads == 2 and model.heads == 4
    assert "ranks" not in [each.code for each in make(model, split(LAYERED, 4)).conflicts]
    odd = replace(model, kv_heads=3, heads=12)
    assert [each.code for each in make(odd, split(LAYERED, 2)).conflicts] == ["ranks"]


def test_packed_words_are_not_cut(model):
    """Rows as one group have no group to cut, but 3-bit values run on from word to word: 48 of them end inside one."""
    narrow = [replace(each, in_features=96) if each.role == "down" else each for each in model.linears]
    model = replace(model, linears=tuple(narrow))
    recipe = replace(LAYERED, rules=(Rule("*.down_proj", Choice(bits=3, group_size=WHOLE_ROW)),))
    assert not make(model, recipe).blocks
    (conflict,) = make(model, split(recipe, 2)).conflicts
    assert conflict.code == "slice_word" and len(conflict.modules) == 2
    for fix in conflict.fixes:
        assert not make(model, fix.recipe).blocks
