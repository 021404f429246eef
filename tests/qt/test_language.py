import gc

import pytest
from PySide6.QtWidgets import QLabel

from ui import language
from ui.widgets import button, label
from workbench.words import Sentence


def test_bound_text_follows_the_language_with_its_values(qapp):
    shown = label("{tokens} tokens", tokens="46,603")
    language.choose("zh_CN")
    assert shown.text() == "46,603 词元"
    language.choose("en")
    assert shown.text() == "46,603 tokens"


def test_a_sentence_inside_a_sentence_follows_too(qapp):
    shown = QLabel()
    language.show(shown.setText, Sentence("Starter model: {stage}", {"stage": Sentence("Starting")}))
    language.choose("zh_CN")
    assert shown.text() == "入门模型：正在启动"


def test_a_plain_string_stays(qapp):
    shown = label("Models")
    language.show(shown.setText, "Qwen2-7B")
    language.choose("zh_CN")
    assert shown.text() == "Qwen2-7B"


def test_accessible_names_are_translated(qapp):
    made = button("Dismiss", only_icon=True, icon="close-line")
    language.choose("zh_CN")
    assert made.accessibleName() == made.toolTip() == "关闭提示"
    assert made.text() == ""


def test_gone_widgets_are_forgotten(qapp):
    shown = label("Models")
    before = len(language._bound)
    del shown
    gc.collect()
    assert len(language._bound) == before - 1


def test_widgets_deleted_by_qt_do_no_harm(qapp):
    shown = label("Models")
    shown.deleteLater()
    qapp.sendPostedEvents()
    qapp.processEvents()
    language.choose("zh_CN")  # must not raise


def test_an_unknown_language_is_a_programmer_error():
    with pytest.raises(AssertionError):
        language.choose("xx")
