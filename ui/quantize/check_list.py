"""What was checked of a written result, each with its mark and sentence."""

from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QWidget

from ui import language
from ui.widgets import label
from ui.widgets.label import restyle
from workbench.quant_events import Checked
from workbench.words import Sentence

COLUMNS = 2


class CheckList(QWidget):
    """Hidden while nothing was checked; what failed tells its detail, what passed has it as a tooltip."""

    def __init__(self):
        super().__init__()
        self._shown: tuple[Checked, ...] = ()
        self.lines: list[QLabel] = []
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(24)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(COLUMNS, 1)
        self.hide()

    def show_checks(self, checks: list[Checked]) -> None:
        if tuple(checks) == self._shown:
            return
        self._shown = tuple(checks)
        while item := self._grid.takeAt(0):
            item.widget().hide()
            item.widget().deleteLater()
        self.lines = []
        for place, check in enumerate(checks):
            self._grid.addWidget(self._line(check), *divmod(place, COLUMNS))
        self.setVisible(bool(checks))

    def _line(self, check: Checked) -> QWidget:
        mark, words = label(role="caption"), label(role="caption")
        mark.setText("✓" if check.passed else "✕")
        for each in (mark, words):
            restyle(each, "tone", "accepted" if check.passed else "rejected")
        restyle(words, "tone", "muted" if check.passed else "rejected")
        name, detail = Sentence(check.name, check.values), Sentence(check.detail, check.values)
        both = Sentence("{check}: {detail}", {"check": name, "detail": detail})
        language.show(words.setText, name if check.passed else both)
        language.show(words.setToolTip, detail)
        outcome = "passed: {check}: {detail}" if check.passed else "failed: {check}: {detail}"
        language.bind(words.setAccessibleName, outcome, check=name, detail=detail)
        line = QWidget()
        row = QHBoxLayout(line)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(mark)
        row.addWidget(words)
        row.addStretch(1)
        self.lines.append(words)
        return line
