"""Where other programs reach an engine: seen and copied while it is ready, the key only copied."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel

from ui.widgets.access_line import AccessLine
from workbench.engine_events import EngineReady


def test_address_and_key_are_copied_and_the_key_is_not_shown(qtbot):
    line = AccessLine()
    qtbot.addWidget(line)
    line.resize(480, 40)
    line.show_ready(EngineReady("http://127.0.0.1:8123", "sk-secret", "m", 1, 3.0))
    assert line.isVisible() and line.address.full == "http://127.0.0.1:8123/v1"
    qtbot.mouseClick(line.copy_address, Qt.MouseButton.LeftButton)
    assert QApplication.clipboard().text() == "http://127.0.0.1:8123/v1"
    assert line.copy_address.text() == "Copied"
    line.copy_key.setFocus()
    qtbot.keyClick(line.copy_key, Qt.Key.Key_Space)
    assert QApplication.clipboard().text() == "sk-secret"
    assert not any("sk-secret" in each.text() + each.toolTip() for each in line.findChildren(QLabel))
    qtbot.waitUntil(lambda: line.copy_key.text() == "Copy key")


def test_a_front_without_a_key_has_none_to_copy_and_nothing_is_seen_before_it_is_ready(qtbot):
    line = AccessLine()
    qtbot.addWidget(line)
    assert line.isHidden()
    line.show_ready(EngineReady("http://127.0.0.1:8123", "", "m", 1, 3.0))
    assert line.isVisible() and not line.copy_key.isVisible()
    line.show_ready(None)
    assert line.isHidden()
