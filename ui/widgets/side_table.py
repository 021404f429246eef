"""Several figures of the sides beside each other: a row a figure, a column a side."""

from collections.abc import Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from ui import language
from ui.plots.looks import leg_word, side_of, spoken
from ui.widgets.elided import Elided
from ui.widgets.label import label, restyle
from ui.widgets.side_line import SideMark
from workbench import figures
from workbench.words import Sentence


class SideTable(QWidget):
    """`rows` are the names by key. Columns come and go with the sides, or the legs of a side, that are shown."""

    def __init__(self, rows: Mapping[str, Sentence]):
        super().__init__()
        self._rows = dict(rows)
        self._columns: dict[str, dict[str, QLabel]] = {}
        self._heads: dict[str, QWidget] = {}
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 2, 0, 2)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(0, 1)
        self._names = {}
        for line, (row, name) in enumerate(self._rows.items(), 1):
            self._names[row] = Elided("caption")
            language.show(self._names[row].show_text, name)
            self._grid.addWidget(self._names[row], line, 0)

    def show_values(self, values: Mapping[str, Mapping[str, Sentence | str]]) -> None:
        """Texts by column key and row key; a row that a column does not name is a dash there."""
        for key in values:
            if key not in self._columns:
                self._add(key)
        for key, labels in self._columns.items():
            self._heads[key].setVisible(key in values)
            for row, shown in labels.items():
                shown.setVisible(key in values)
                if key in values:
                    text = values[key].get(row, figures.DASH)
                    language.show(shown.setText, text)
                    shown.setAccessibleName(f"{spoken(key)} {self._rows[row]} {text}")

    def value(self, key: str, row: str) -> str:
        """The text that stands there."""
        return self._columns[key][row].text() if key in self._columns else ""

    def _add(self, key: str) -> None:
        column = len(self._columns) + 1
        side = side_of(key)
        head = SideMark(side)
        if leg := leg_word(key):
            head = label(role="caption")
            language.show(head.setText, leg)
            restyle(head, "tone", side)
        self._heads[key] = head
        self._grid.addWidget(head, 0, column, Qt.AlignmentFlag.AlignRight)
        self._columns[key] = {}
        for line, row in enumerate(self._rows, 1):
            shown = label(role="body")
            restyle(shown, "tone", side)
            self._grid.addWidget(shown, line, column, Qt.AlignmentFlag.AlignRight)
            self._columns[key][row] = shown
