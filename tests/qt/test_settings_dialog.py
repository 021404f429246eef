import sys

import pytest

from ui import language
from ui.settings_dialog import SettingsDialog


@pytest.fixture
async def dialog(settings, tasks, qtbot):
    made = SettingsDialog(settings, tasks, None)
    qtbot.addWidget(made)
    yield made
    made.close()


def pick(box, code):
    box.setCurrentIndex(box.findData(code))
    box.activated.emit(box.currentIndex())


async def test_a_choice_holds_at_once_and_is_named(dialog, settings):
    named = []
    dialog.changed.connect(named.append)
    pick(dialog.theme, "light")
    pick(dialog.language, "zh_CN")
    pick(dialog.language, "zh_CN")
    assert (settings.theme, settings.language) == ("light", "zh_CN")
    assert named == ["theme", "language"]


async def test_the_choices_follow_the_language_and_stay_chosen(dialog, settings):
    pick(dialog.theme, "light")
    language.choose("zh_CN")
    assert dialog.theme.currentText() == "浅色"
    assert [dialog.language.itemText(index) for index in range(3)] == ["跟随系统", "English", "简体中文"]


async def test_it_says_what_the_interpreter_holds(dialog, settings, until):
    dialog.open()
    await until(lambda: dialog.finding.text().startswith("vLLM 0."), 30)
    assert "torch 2." in dialog.finding.text()


async def test_a_wrong_interpreter_is_said_in_place(dialog, settings, until, told):
    dialog.interpreter.setText("/nowhere/python")
    dialog.interpreter.editingFinished.emit()
    await until(lambda: "/nowhere/python" in dialog.finding.text())
    assert dialog.finding.property("tone") == "rejected"
    assert settings.interpreter == "/nowhere/python" and told == []
    dialog.interpreter.clear()
    dialog.interpreter.editingFinished.emit()
    await until(lambda: dialog.finding.text().startswith("vLLM"), 30)
    assert settings.interpreter == sys.executable


async def test_model_folders_are_added_once_and_removed(dialog, settings):
    for path in ("/a", "/b", "/a"):
        dialog._on_folder(path)
    assert settings.model_folders == ("/a", "/b")
    dialog.folders.setCurrentRow(0)
    dialog._remove_folder()
    assert settings.model_folders == ("/b",)


async def test_unloading_idle_engines_is_off_until_minutes_are_chosen(dialog, settings):
    named = []
    dialog.changed.connect(named.append)
    assert settings.unload_idle == 0 and dialog.unload.text() == "never"
    dialog.unload.setValue(15)
    assert (settings.unload_idle, dialog.unload.text(), named) == (15, "15 min", ["unload_idle"])
    language.choose("zh_CN")
    assert dialog.unload.text() == "15 分钟"
