"""What a tried choice comes to, and whether it is kept."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.label import label
from ui.widgets.line import line
from ui.widgets.reflow import Reflow
from workbench.words import Sentence

WORDS = 200  # pixels, beside the buttons; with less room they stand below


class TrialBar(QWidget):
    """Signals: `kept` when the choice shall be the recipe's, `discarded` when it shall be forgotten."""

    kept = Signal()
    discarded = Signal()

    def __init__(self):
        super().__init__()
        self.outcome = label(wrap=True)
        self.state = label(role="caption", wrap=True)
        self.keep = button("Keep", self.kept.emit, icon="check-line")
        language.bind(self.keep.setToolTip, "Write the choice into the recipe")
        self.discard = button("Discard", self.discarded.emit, kind="quiet")
        language.bind(self.discard.setToolTip, "Go back to the recipe's choice")
        words, actions = QWidget(), line(None, self.discard, self.keep)
        words.setMinimumWidth(WORDS)
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.outcome)
        column.addWidget(self.state)
        both = Reflow(2, 1, stretch=(1, 0))
        both.add(words, actions)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 4, 0, 0)
        whole.addWidget(both)

    def show_trial(self, outcome: Sentence | str, state: Sentence | str | None) -> None:
        """`outcome` is what the whole model would come to, `state` how far the answer is."""
        language.show(self.outcome.setText, outcome)
        language.show(self.state.setText, state or "")
        self.state.setVisible(state is not None)
