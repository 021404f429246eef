"""What was checked of a written result, each with its mark and sentence."""

from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from ui import language
from ui.widgets import label
from ui.widgets.label import restyle
from ui.widgets.line import line
from ui.widgets.reflow import Reflow
from workbench.quant_events import Checked
from workbench.words import Sentence


class CheckList(QWidget):
    """Hidden while nothing was checked; what failed tells its detail, what passed has it as a tooltip."""

    def __init__(self):
        super().__init__()
        self._shown: tuple[Checked, ...] = ()
        self.lines: list[QLabel] = []
        self._places = Reflow(2, 1, across=24, down=2)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(self._places)
        self.hide()

    def show_checks(self, checks: list[Checked]) -> None:
        if tuple(checks) == self._shown:
            return
        self._shown = tuple(checks)
        self._places.empty()
        self.lines = []
        self._places.add(*map(self._line, checks))
        self.setVisible(bool(checks))

    def _line(self, check: Checked) -> QWidget:
        mark, words = label(role="caption"), label(role="caption", wrap=not check.passed)
        mark.setText("✓" if check.passed else "✕")
        restyle(mark, "tone", "accepted" if check.passed else "rejected")
        restyle(words, "tone", "muted" if check.passed else "text")  # red on a failure's red ground is hard to read
        name, detail = Sentence(check.name, check.values), Sentence(check.detail, check.values)
        both = Sentence("{check}: {detail}", {"check": name, "detail": detail})
        language.show(words.setText, name if check.passed else both)
        language.show(words.setToolTip, detail)
        outcome = "passed: {check}: {detail}" if check.passed else "failed: {check}: {detail}"
        language.bind(words.setAccessibleName, outcome, check=name, detail=detail)
        self.lines.append(words)
        made = line(mark, words, spacing=6)
        made.layout().setStretch(1, 1)
        return made
