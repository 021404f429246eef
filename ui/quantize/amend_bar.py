"""A change that is wanted while a job goes on: what it comes to, and the button that hands it over."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout

from ui import language
from ui.quantize.amending import Amending
from ui.widgets import button, label
from ui.widgets.label import restyle
from workbench import figures
from workbench.words import Sentence


class AmendBar(QFrame):
    """Hidden while nothing is wanted. Signals: `applied` and `discarded` say what shall become of the change."""

    applied = Signal()
    discarded = Signal()

    def __init__(self):
        super().__init__()
        self.setObjectName("card")
        self.words = label(wrap=True)
        self.discard = button("Discard", self.discarded.emit, kind="quiet")
        language.bind(self.discard.setToolTip, "Go on by the recipe as it is")
        self.apply = button("Apply", self.applied.emit, icon="check-line")
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 8, 12, 8)
        row.setSpacing(8)
        row.addWidget(self.words, 1)
        row.addWidget(self.discard)
        row.addWidget(self.apply)
        self.hide()

    def show_change(self, amending: Amending) -> None:
        """Show what is wanted and how far it is."""
        first, wanted, names = amending.first, amending.wanted, amending.names
        wants = amending.waits is None and (wanted is not None or amending.error is not None)
        ready = bool(names) and not amending.barred and amending.error is None and first is not None
        language.show(self.words.setText, self._words(amending))
        restyle(self.words, "tone", "rejected" if amending.error or amending.barred else "")
        for control in (self.apply, self.discard):
            control.setVisible(wants)
        self.apply.setEnabled(ready and not amending.handing)
        self.discard.setEnabled(not amending.handing)
        if first is not None:
            for setter in (self.apply.setText, self.apply.setAccessibleName):
                language.bind(setter, "Apply from block {block}", block=first)
        self.setVisible(wants or amending.waits is not None)

    def _words(self, amending: Amending) -> Sentence | str:
        if amending.error:
            return f"{amending.error} {amending.error.hint}".strip()
        if amending.waits is not None:
            return Sentence("The change waits for block {block}.", {"block": amending.waits})
        if amending.wanted is None:
            return ""
        if amending.first is None or not amending.names:
            return Sentence("The blocks that this would change have all been begun.")
        if amending.barred:
            return Sentence("The change cannot be made like this: see above.")
        plan = amending.wanted.plan
        values = {
            "count": len(amending.names),
            "size": figures.bytes_of(plan.predicted_bytes),
            "bits": figures.number(plan.average_bits, 3),
        }
        return Sentence(
            "{count} {count:layer|layers} not begun would change; the model then takes {size}, {bits} bits on average.",
            values,
        )
