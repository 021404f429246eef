"""What a tried choice comes to, and whether it is kept."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.label import label
from workbench.words import Sentence


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
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(self.outcome)
        words.addWidget(self.state)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 4, 0, 0)
        row.setSpacing(8)
        row.addLayout(words, 1)
        row.addWidget(self.discard)
        row.addWidget(self.keep)

    def show_trial(self, outcome: Sentence | str, state: Sentence | str | None) -> None:
        """`outcome` is what the whole model would come to, `state` how far the answer is."""
        language.show(self.outcome.setText, outcome)
        language.show(self.state.setText, state or "")
        self.state.setVisible(state is not None)
