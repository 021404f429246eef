"""Scrolled content takes the width there is, whatever it asks for."""

from PySide6.QtWidgets import QWidget

from ui.widgets.scrolled import Scrolled

WIDE = 560


class Columns(QWidget):
    """Asks for more width when it is wide, as fields do that stand in more columns then."""

    def __init__(self):
        super().__init__()
        self.resized = 0

    def resizeEvent(self, event) -> None:
        self.resized += 1
        assert self.resized < 50, "to and fro"
        self.setMinimumWidth(595 if self.width() >= WIDE else 466)


def test_content_that_asks_for_more_width_when_it_is_wide_settles(qtbot):
    scrolled, content = Scrolled(), Columns()
    qtbot.addWidget(scrolled)
    scrolled.body.addWidget(content)
    scrolled.resize(800, 300)
    scrolled.show()
    assert content.width() == 800
    scrolled.resize(411, 300)
    qtbot.wait(20)
    assert scrolled.widget().width() == scrolled.viewport().width() == 411
    assert content.resized < 10
