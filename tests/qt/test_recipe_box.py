"""The recipe box: presets and own recipes in one list, kept, brought, written and removed without a modal dialog."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from ui import language
from ui.quantize.recipe_box import RecipeBox
from workbench import recipe as recipes
from workbench import recipes_kept
from workbench.recipe import LAYERED, PRESETS, Choice, Rule

MINE = replace(LAYERED, rules=(Rule("*.o_proj", Choice(bits=8)),))


@pytest.fixture
def box(qtbot):
    box = RecipeBox()
    qtbot.addWidget(box)
    box.show_recipe(LAYERED)
    box.show()
    return box


@pytest.fixture
def picked(box):
    found = []
    box.picked.connect(found.append)
    return found


def texts(box) -> list[str]:
    return [box.choice.itemText(index) for index in range(box.choice.count()) if box.choice.itemText(index)]


def actions(box) -> list[str]:
    box.fill_menu()
    return [action.text() for action in box.menu.actions() if action.text()]


def save(box, name: str) -> None:
    box.save_as()
    box.naming.name.setText(name)
    box.naming.save.click()


def test_a_kept_file_that_cannot_be_read_is_listed_with_its_reason(box, picked):
    save(box, "mine")
    recipes.kept_file("mine").write_text('{"samplez": 4}')
    box.hide()
    box.show()
    row = box.choice.findText("mine: cannot be read")
    assert row > 0 and not box.choice.model().item(row).isEnabled()
    told = box.choice.itemData(row, Qt.ItemDataRole.ToolTipRole)
    assert "samplez" in told and "samples" in told and "mine.json" in told
    assert box.choice.currentText().startswith("mine") and box.choice.currentIndex() != row


def test_all_presets_are_listed_in_both_languages(box):
    assert len(texts(box)) == len(PRESETS) == 7 and box.choice.currentText() == "Layered: AWQ attention, GPTQ MLP"
    english = texts(box)
    language.choose("zh_CN")
    assert len(set(english) & set(texts(box))) == 0


def test_taking_one_is_told_once(box, picked):
    index = next(at for at in range(box.choice.count()) if box.choice.itemData(at) == PRESETS["glm"])
    box.choice.activated.emit(index)
    assert picked == [PRESETS["glm"]]
    box.show_recipe(PRESETS["glm"])
    box.choice.activated.emit(index)
    assert len(picked) == 1


def test_a_changed_recipe_is_kept_under_a_name(box, picked):
    box.show_recipe(MINE)
    assert box.choice.currentText() == "Layered, changed"
    box.save_as()
    assert box.naming.isVisible() and box.naming.name.text() == "" and not box.naming.save.isEnabled()
    box.naming.name.setText("a/b")
    box.naming.save.click()
    assert box.naming.isVisible() and "a/b" in box.naming.note.text()
    box.naming.name.setText("mine")
    box.naming.save.click()
    assert not box.naming.isVisible() and box.choice.currentText() == "mine"
    assert picked == [replace(MINE, name="mine")] == [recipes.load("mine")]


def test_keeping_again_under_the_same_name_says_that_it_replaces(box, picked):
    box.show_recipe(MINE)
    save(box, "mine")
    changed = replace(recipes.load("mine"), rules=())
    box.show_recipe(changed)
    assert box.choice.currentText() == "mine, changed"
    box.save_as()
    assert box.naming.name.text() == "mine" and "replaced" in box.naming.note.text()
    box.naming.save.click()
    assert box.choice.currentText() == "mine" and recipes.load("mine") == changed == picked[-1]
    assert texts(box).count("mine") == 1


def test_cancel_keeps_nothing(box, picked):
    box.save_as()
    box.naming.name.setText("mine")
    box.naming.reject()
    assert picked == [] and recipes_kept.listing() == ()


def test_a_file_goes_out_and_comes_in(box, picked, tmp_path):
    box.show_recipe(replace(MINE, name="theirs"))
    box.write(str(tmp_path / "theirs.json"))
    box.show_recipe(LAYERED)
    box.bring(str(tmp_path / "theirs.json"))
    assert picked == [replace(MINE, name="theirs")] and box.choice.currentText() == "theirs"
    box.bring(str(tmp_path / "theirs.json"))  # the name is taken now
    assert box.naming.isVisible() and len(picked) == 1
    box.naming.reject()


def test_a_bad_file_is_told(box, picked, tmp_path):
    told = []
    box.failed.connect(told.append)
    (tmp_path / "bad.json").write_text('{"mlp": {"bits": 5}}')
    box.bring(str(tmp_path / "bad.json"))
    assert picked == [] and "Bits cannot be 5" in str(told[0]) and told[0].hint
    (tmp_path / "file").write_text("")
    box.write(str(tmp_path / "file" / "x.json"))
    assert "could not be written" in str(told[1])


def test_dialogs_open_beside_the_window(box):
    box.choose_import()
    box.choose_export()
    dialogs = box.findChildren(QFileDialog)
    assert len(dialogs) == 2 and all(dialog.isVisible() for dialog in dialogs)
    assert dialogs[1].acceptMode() == QFileDialog.AcceptMode.AcceptSave
    for dialog in dialogs:
        dialog.close()


def test_removing_asks_and_is_offered_for_own_recipes_only(box):
    assert actions(box) == ["Exceptions…", "Save as…", "Import…", "Export…"]
    box.show_recipe(MINE)
    save(box, "mine")
    assert actions(box)[-1] == "Remove mine…"
    box.ask_removal()
    assert box.question.isVisible() and recipes_kept.exists("mine")
    next(button for button in box.question.buttons() if button.text() == "Remove").click()
    assert not recipes_kept.exists("mine") and box.choice.currentText() == "mine, not saved"


def test_every_control_has_a_name(box):
    assert box.choice.accessibleName() and box.more.accessibleName() and box.naming.name.accessibleName()
