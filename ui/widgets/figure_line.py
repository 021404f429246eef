"""A figure in a line: the number, what is small beside it, and the rest muted at the right."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui import language
from ui.widgets.elided import Elided
from ui.widgets.label import label, restyle
from workbench.words import Sentence

MARK = 16  # pixels: a line without a mark begins where those with one have their number


class FigureLine(QWidget):
    """`show_value("0.41", "s", rest)`; a dash stands for what is not known. `tone` colours the number."""

    def __init__(self, mark: QWidget | None = None, name: Sentence | str = "", tone: str = ""):
        super().__init__()
        self._number = label(role="section")
        self._unit = label(role="caption")
        self._rest = Elided("caption")
        self._rest.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBaseline)
        line = QHBoxLayout(self)
        line.setContentsMargins(0 if mark else MARK, 0, 0, 0)
        line.setSpacing(4)
        if mark:
            line.addWidget(mark, 0, Qt.AlignmentFlag.AlignVCenter)
        if name:
            named = label(role="caption")
            language.show(named.setText, name)
            line.addWidget(named, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._number, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._unit, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._rest, 1, Qt.AlignmentFlag.AlignBaseline)
        restyle(self._number, "tone", tone)

    def show_value(self, number: Sentence | str, unit: str = "", rest: Sentence | str = "") -> None:
        language.show(self._number.setText, number)
        self._unit.setText(unit)
        language.show(self._rest.show_text, rest)
        self.setAccessibleName(f"{number} {unit} {rest}".strip())

    @property
    def text(self) -> str:
        return f"{self._number.text()} {self._unit.text()} {self._rest.full}".strip()
