"""One side of the chat: who answers, and the transcript."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout

from ui import language
from ui.plots.looks import NAMES
from ui.widgets.badge import Badge
from ui.widgets.button import button
from ui.widgets.elided import Elided
from ui.widgets.label import restyle
from ui.widgets.line import line
from ui.widgets.side_line import SideMark
from ui.widgets.stored_weights import precision_of
from ui.widgets.transcript import Transcript
from workbench import figures
from workbench.catalog.model import Model
from workbench.words import Sentence, say


class ChatColumn(QFrame):
    """`action` is what this side can do besides answering: catch up with the last prompt, or take its turn.

    `model_chosen(name)` when the user has another of the engine's models answer: the model itself or an adapter.
    """

    model_chosen = Signal(str)

    def __init__(self, side: str):
        super().__init__()
        self.side = side
        self.setObjectName("card")
        language.show(self.setAccessibleName, NAMES[side])
        self.name = Elided("section")
        restyle(self.name, "tone", side)
        self.badge = Badge(tone=side)
        self.about = Elided("caption")
        self.name.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.who = QComboBox()
        self.who.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.who.activated.connect(lambda _index: self.model_chosen.emit(self.who.currentText()))
        self.who.hide()
        for setter in (self.who.setAccessibleName, self.who.setToolTip):
            language.bind(setter, "Who answers: the model itself, or one of its adapters")
        self.action = button("Answer here too", kind="plain")
        self.action.hide()
        self.transcript = Transcript()
        language.bind(self.transcript.setAccessibleName, "Answers of {side}", side=NAMES[side])
        head = QHBoxLayout()
        head.setContentsMargins(12, 8, 12, 0)
        head.setSpacing(8)
        head.addWidget(SideMark(side))
        head.addWidget(self.name)
        head.addWidget(self.who)
        head.addWidget(self.badge)
        head.addStretch(1)
        head.addWidget(self.action)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(1, 1, 1, 1)
        whole.setSpacing(0)
        whole.addLayout(head)
        below = line(self.about)
        below.layout().setContentsMargins(30, 0, 12, 4)  # under the name, past its mark
        whole.addWidget(below)
        whole.addWidget(self.transcript, 1)

    def show_head(self, name: str, model: Model | None, state: Sentence | None) -> None:
        """The served name (the side's own while none is known), precision and memory; `state` while it is not ready."""
        self.name.show_text(name or str(NAMES[self.side]))
        precision = precision_of(model)
        self.badge.setVisible(bool(precision))
        self.badge.show_text(precision, self.side)
        said = []
        if model is not None and model.weight_bytes:
            said.append(say("{size} of weights", size=figures.bytes_of(model.weight_bytes)))
        if state is not None:
            said.append(str(state))
        self.about.show_text(" · ".join(said))

    def show_models(self, names: Sequence[str], chosen: str) -> None:
        """Offer these to answer; a single one needs no choice."""
        if names != [self.who.itemText(index) for index in range(self.who.count())]:
            self.who.clear()
            self.who.addItems(names)
        self.who.setCurrentText(chosen)
        self.who.setVisible(len(names) > 1)
        self.name.setVisible(len(names) < 2)

    def offer(self, template: str | None) -> None:
        """Show the column's action under this name; None hides it."""
        self.action.setVisible(template is not None)
        if template is not None:
            language.bind(self.action.setText, template)
            language.bind(self.action.setAccessibleName, template)
