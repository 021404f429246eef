"""One side's figure in a line: its mark, the number with a small unit, and the rest muted."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui import language, theme
from ui.plots.kv_pages import paint_mark
from ui.plots.looks import leg_word, side_of
from ui.widgets.elided import Elided
from ui.widgets.label import label, restyle
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


class SideLine(QWidget):
    """`show_value("0.41", "s", rest)`; a dash stands for what is not known. `key` is a side or a leg of one."""

    def __init__(self, key: str):
        super().__init__()
        side = side_of(key)
        self._number = label(role="section")
        self._unit = label(role="caption")
        self._rest = Elided("caption")
        self._rest.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBaseline)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(4)
        line.addWidget(SideMark(side), 0, Qt.AlignmentFlag.AlignVCenter)
        if leg := leg_word(key):
            name = label(role="caption")
            language.show(name.setText, leg)
            line.addWidget(name, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._number, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._unit, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._rest, 1, Qt.AlignmentFlag.AlignBaseline)
        restyle(self._number, "tone", side)

    def show_value(self, number: Sentence | str, unit: str = "", rest: Sentence | str = "") -> None:
        language.show(self._number.setText, number)
        self._unit.setText(unit)
        language.show(self._rest.show_text, rest)
        self.setAccessibleName(f"{number} {unit} {rest}".strip())

    @property
    def text(self) -> str:
        return f"{self._number.text()} {self._unit.text()} {self._rest.full}".strip()
