"""Recipes: choices declared once, files that can be read, and errors that say what to do."""

import json
from dataclasses import fields, replace

import pytest

from workbench import recipe as recipes
from workbench.errors import WorkbenchError
from workbench.recipe import LAYERED, PRESETS, Choice, Recipe, Rule


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_a_file(name, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(recipes.to_dict(PRESETS[name])))
    assert recipes.load(str(path)) == PRESETS[name] == recipes.load(name)


def test_presets_compare_like_with_like():
    for name in ("best", "rtn", "awq", "gptq"):
        for part in ("attention", "mlp"):
            mine, layered = getattr(PRESETS[name], part), getattr(LAYERED, part)
            assert (mine.bits, mine.group_size, mine.symmetric) == (layered.bits, layered.group_size, layered.symmetric)


def test_presets_are_what_they_are_called():
    methods = {name: tuple(choice.method for choice in preset.choices) for name, preset in PRESETS.items()}
    assert methods == {
        "layered": ("awq", "gptq"), "best": ("gptq",) * 2, "rtn": ("rtn",) * 2, "awq": ("awq",) * 2,
        "gptq": ("gptq",) * 2, "int8": ("gptq",) * 2, "glm": ("awq", "keep"),
    }  # fmt: skip
    assert all(choice.clip and choice.refine for choice in PRESETS["best"].choices)
    assert {(choice.bits, choice.symmetric) for choice in PRESETS["int8"].choices} == {(8, True)}
    assert (PRESETS["glm"].attention.group_size, PRESETS["glm"].attention.symmetric) == (64, True)


def test_rules_survive_a_file():
    mine = replace(LAYERED, rules=(Rule("*.o_proj", Choice(method="keep")), Rule("*.0.*", Choice(bits=8))))
    assert recipes.from_dict(json.loads(json.dumps(recipes.to_dict(mine)))) == mine


def test_what_a_file_leaves_out_has_its_default(tmp_path):
    path = tmp_path / "small.json"
    path.write_text('{"mlp": {"method": "rtn"}}')
    small = recipes.load(str(path))
    assert small.name == "small" and small.mlp == Choice(method="rtn") and small.samples == 128 and small.length == 512


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({"methode": 1}, "methode"),
        ({"mlp": {"bit": 4}}, "bit"),
        ({"mlp": {"bits": 5}}, "Bits cannot be 5"),
        ({"mlp": {"bits": True}}, "Bits cannot be True"),
        ({"mlp": {"bits": "4"}}, "Bits cannot be 4"),
        ({"mlp": {"group_size": 48}}, "Group size cannot be 48"),
        ({"mlp": {"symmetric": 1}}, "Symmetric cannot be 1"),
        ({"mlp": {"method": "magic"}}, "magic"),
        ({"mlp": {"damping": 0}}, "Damping cannot be 0"),
        ({"mlp": {"damping": "much"}}, "Damping cannot be much"),
        ({"mlp": {"bits": 8, "symmetric": False}}, "4 bits"),
        ({"mlp": {"order": "group"}}, "Column order cannot be group"),  # H15: vLLM refuses it
        ({"mlp": {"order": "dynamic"}}, "Column order cannot be dynamic"),
        ({"mlp": {"scale": "yes"}}, "Scale search cannot be yes"),
        ({"tensor_parallel": 0}, "GPUs to split over cannot be 0"),
        ({"name": 5}, "one line"),
        ({"mlp": []}, "objects"),
        ({"rules": {}}, "list"),
        ({"rules": [{"pattern": "*"}]}, "pattern and a choice"),
        ({"samples": 0}, "Calibration samples cannot be 0"),
        ({"length": 2.5}, "2.5"),
        ({"seed": True}, "Seed cannot be True"),
        ({"calibration_file": 5}, "calibration file"),
        ([], "objects"),
    ],
)
def test_wrong_values_are_told_with_a_next_step(stored, told, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(stored))
    with pytest.raises(WorkbenchError, match=told) as caught:
        recipes.load(str(path))
    assert caught.value.hint


def test_an_unknown_field_suggests_the_near_one():
    with pytest.raises(WorkbenchError) as caught:
        recipes.from_dict({"atention": {}})
    assert "attention" in caught.value.hint


def test_a_name_that_is_no_recipe(tmp_path):
    with pytest.raises(WorkbenchError, match="layerd") as caught:
        recipes.load("layerd")
    assert "layered" in caught.value.hint
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(WorkbenchError, match="valid JSON"):
        recipes.load(str(tmp_path / "broken.json"))
    with pytest.raises(WorkbenchError):
        recipes.load(str(tmp_path))


def test_one_group_size_everywhere():
    mine = recipes.with_group_size(replace(LAYERED, rules=(Rule("*.o_proj", Choice()),)), 64)
    assert {choice.group_size for choice in mine.choices} == {64}


def test_a_new_rule_takes_the_place_of_an_old_one():
    once = recipes.with_rules(LAYERED, ("a", "b"), Choice(bits=8))
    twice = recipes.with_rules(once, ("a",), Choice(method="keep"))
    assert [(rule.pattern, rule.choice.kept) for rule in twice.rules] == [("b", False), ("a", True)]
    wide = recipes.with_rules(recipes.with_rules(LAYERED, ("model.layers.3.a",), Choice()), ("*.a",), Choice(bits=8))
    assert [rule.pattern for rule in wide.rules] == ["*.a"]


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_low_bits_may_have_a_zero_point(bits):
    assert Choice(bits=bits, symmetric=False).bits == bits


def test_every_option_has_a_label():
    assert all(option.metadata["label"] for kind in (Choice, Recipe) for option in fields(kind))
