"""One side's figure in a line, after its mark."""

from PySide6.QtCore import QSize
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from ui import theme
from ui.plots.kv_pages import paint_mark
from ui.plots.looks import leg_word, side_of, spoken
from ui.widgets.figure_line import FigureLine
from workbench.words import Sentence


class SideMark(QWidget):
    """The side's own mark: a filled blue circle for the original, an open amber diamond for the quantized."""

    def __init__(self, side: str):
        super().__init__()
        self._side = side
        self.setFixedSize(QSize(12, 16))
        theme.changed.connect(self.update)

    def paintEvent(self, event) -> None:
        paint_mark(QPainter(self), self._side, self.width() / 2, self.height() / 2)


class SideLine(FigureLine):
    """A figure of `key`, a side or a leg of one."""

    def __init__(self, key: str):
        self._key = key
        side = side_of(key)
        super().__init__(SideMark(side), leg_word(key), side)

    def show_value(self, number: Sentence | str, unit: str = "", rest: Sentence | str = "") -> None:
        super().show_value(number, unit, rest)
        self.setAccessibleName(f"{spoken(self._key)} {self.accessibleName()}")
