"""Exceptions by pattern, set and removed by hand beside the window, with what each matches."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from ui.quantize.recipe_details import RecipeDetails
from workbench.catalog.folder import inspect
from workbench.plan import make
from workbench.recipe import KEEP, LAYERED, Choice, Rule


@pytest.fixture
def details(tiny, qtbot):
    """Shows a plan and, like the page, the plan of every recipe that it changes to."""
    model = inspect(tiny)
    details = RecipeDetails(None)
    qtbot.addWidget(details)
    details.plans = [make(model, replace(LAYERED, rules=(Rule("*.o_proj", Choice(bits=8)), Rule("*.mlp.*", KEEP))))]
    details.changed.connect(lambda recipe: details.plans.append(make(model, recipe)))
    details.changed.connect(lambda _recipe: details.show_plan(details.plans[-1]))
    details.show_plan(details.plans[0])
    details.show()
    return details


def rows(details) -> list[list[str]]:
    found = [details.rules.topLevelItem(row) for row in range(details.rules.topLevelItemCount())]
    return [[item.text(column) for column in range(4)] for item in found]


def test_each_rule_stands_with_what_it_matches(details):
    first, second = rows(details)
    assert (
        first[0] == "*.o_proj"
        and first[1] == "GPTQ · 8 bit · largest group that fits · symmetric"
        and first[2:] == ["2", "2"]
    )
    assert second[0] == "*.mlp.*" and "16 bit" in second[1] and second[2:] == ["6", "6"]


def test_the_layers_of_a_rule_unfold_below_it_and_belong_to_it(details):
    item = details.rules.topLevelItem(1)
    item.setExpanded(True)
    layers = [item.child(row).text(0) for row in range(item.childCount())]
    assert layers == list(details.plans[-1].matches[1].modules) and len(layers) == 6
    details.rules.setCurrentItem(item.child(3))
    assert details.pattern.text() == "*.mlp.*"
    details.remove.click()
    assert [rule.pattern for rule in details.plans[-1].recipe.rules] == ["*.o_proj"]


def test_a_pattern_tells_what_it_matches_while_it_is_typed(details):
    details.pattern.setText("*.q_proj")
    assert "2 layers" in details.reach.text() and details.add.isEnabled()
    details.pattern.setText("model.layer.0.*")
    assert "model.layers.0.*" in details.reach.text() and not details.add.isEnabled()
    details.pattern.setText("")
    assert details.reach.text() == "" and not details.add.isEnabled()


def test_setting_a_rule_takes_its_layers_from_wider_ones(details, qtbot):
    details.pattern.setText("*.down_proj")
    details.form.method.setCurrentIndex(details.form.method.findData("rtn"))
    details.form.method.activated.emit(details.form.method.currentIndex())
    qtbot.keyClick(details.pattern, Qt.Key.Key_Return)
    plan = details.plans[-1]
    assert not plan.blocks and len(rows(details)) == 4
    methods = {entry.linear.leaf: entry.choice.method for entry in plan.linears}
    assert methods["down_proj"] == "rtn" and methods["up_proj"] == "keep" and methods["o_proj"] == "gptq"


def test_a_chosen_rule_is_changed_or_removed(details):
    assert not details.remove.isEnabled()
    details.rules.setCurrentItem(details.rules.topLevelItem(0))
    assert details.pattern.text() == "*.o_proj" and details.form.bits.currentData() == 8
    details.form.bits.setCurrentIndex(details.form.bits.findData(4))
    details.form.bits.activated.emit(details.form.bits.currentIndex())
    details.add.click()
    assert [rule.choice.bits for rule in details.plans[-1].recipe.rules if rule.pattern == "*.o_proj"] == [4]
    details.rules.setCurrentItem(details.rules.topLevelItem(0))
    details.remove.click()
    assert [rule.pattern for rule in details.plans[-1].recipe.rules] == ["*.o_proj"]


def test_gpus_to_split_over(details):
    details.ranks.setValue(3)
    assert details.plans[-1].recipe.tensor_parallel == 3 and details.plans[-1].blocks
    assert details.ranks.value() == 3
