"""A target for the whole model, in bits or in GB, and the mix of widths that meets it."""

import math
from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QCheckBox, QDoubleSpinBox, QHBoxLayout, QVBoxLayout, QWidget

from ui import language
from ui.quantize.mixes import Mixes
from ui.widgets.button import button
from ui.widgets.label import label
from ui.widgets.optional_number import MARGINS
from workbench import allocation, figures
from workbench.allocation import Proposal, Target
from workbench.plan import Plan
from workbench.words import Sentence

GB = 1e9


class TargetBar(QWidget):
    """Average bits and GB are two units of one target: what is set in one is answered in the other.

    Signals: `wanted(target)` when the user set one.
    """

    wanted = Signal(object)

    def __init__(self, mixes: Mixes):
        super().__init__()
        self._mixes = mixes
        self.bits = self._spin("Average bits", 2.0, 16.0, 78)
        self.bits.setSingleStep(0.1)
        self.size = self._spin("Size in GB", 0.001, 9999.0, 88)
        self.low = QCheckBox()
        language.bind(self.low.setText, "2 and 3 bit")
        language.bind(self.low.setToolTip, "Use widths that vLLM serves on some devices only, or not at all")
        self.outcome = label(role="caption", wrap=True)
        self.use = button("Use this mix", mixes.use, icon="check-line")
        language.bind(self.use.setToolTip, "Write the mix into the recipe as rules, which each layer's form can change")
        self.discard = button("Discard", mixes.discard, kind="quiet")
        self.undo = button("Take the mix out", mixes.undo, kind="quiet", icon="arrow-go-back-line")
        language.bind(self.undo.setToolTip, "Go back to the recipe below it; what you changed since stays")
        self.bits.valueChanged.connect(lambda bits: self._want(Target(bits=round(bits, 2))))
        self.size.valueChanged.connect(lambda size: self._want(Target(size=round(size * GB))))
        self.low.clicked.connect(self._on_low)
        self._shown: tuple[Plan | None, Target | None] = (None, None)
        self._lay_out()

    def draw(self, plan: Plan, locked: bool) -> None:
        """Show the plan's figures, or the proposal's where there is one."""
        mixes, proposal = self._mixes, self._mixes.proposal
        target = mixes.target
        self._put(proposal.plan if proposal else plan, target)
        for field in (self.bits, self.size, self.low):
            field.setEnabled(not locked)
        language.show(self.outcome.setText, self._told(proposal))
        if proposal:
            language.bind(
                self.outcome.setToolTip,
                "What rounding costs by each layer's method, summed: good to compare mixes, no forecast of the result",
            )
        else:
            language.release(self.outcome.setToolTip)
            self.outcome.setToolTip("")
        self.discard.setVisible(target is not None)
        self.use.setVisible(target is not None)
        self.use.setEnabled(proposal is not None and proposal.recipe != proposal.base and not locked)
        self.undo.setVisible(mixes.inside and target is None)
        self.undo.setEnabled(not locked)

    def _told(self, proposal: Proposal | None) -> Sentence | str:
        if error := self._mixes.error:
            return f"{error} {error.hint}".strip()
        if proposal is not None:
            return told(proposal)
        if self._mixes.target is not None:
            return Sentence("Searching the mix of least damage…")
        if self._mixes.inside:
            return Sentence("The mix is in the recipe. Each layer can still be changed.")
        return Sentence("Set a target: the bits go where they prevent the most damage.")

    def _want(self, target: Target) -> None:
        self.wanted.emit(replace(target, low=self.low.isChecked()))

    def _on_low(self) -> None:
        if target := self._mixes.target:
            self._want(target)

    def _put(self, plan: Plan, target: Target | None) -> None:
        """Show the plan's figures in the fields, but for the one that the target was set in."""
        if plan is self._shown[0] and target == self._shown[1]:
            return
        self._shown = plan, target
        with QSignalBlocker(self.bits), QSignalBlocker(self.size):
            if target is None or target.bits is None:
                self.bits.setValue(allocation.average_bits(plan))
            if target is None or target.size is None:
                digits = 3 if plan.predicted_bytes < 10 * GB else 1
                self.size.setDecimals(digits)
                self.size.setSingleStep(10**-digits)
                self.size.setValue(math.ceil(plan.predicted_bytes / GB * 10**digits) / 10**digits)

    def _spin(self, title: str, least: float, most: float, width: int) -> QDoubleSpinBox:
        spin = _Amount()
        spin.setRange(least, most)
        spin.setFixedWidth(width)
        spin.setKeyboardTracking(False)
        spin.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        spin.lineEdit().setTextMargins(*MARGINS)
        language.bind(spin.setAccessibleName, title)
        return spin

    def _lay_out(self) -> None:
        fields = QHBoxLayout()
        fields.setSpacing(6)
        fields.addWidget(label("Average bits", "caption"))
        fields.addWidget(self.bits)
        fields.addWidget(label("or GB", "caption"))
        fields.addWidget(self.size)
        fields.addStretch(1)
        fields.addWidget(self.low)
        ends = QHBoxLayout()
        ends.setSpacing(8)
        ends.addStretch(1)
        for each in (self.undo, self.discard, self.use):
            ends.addWidget(each)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 0)
        column.setSpacing(4)
        column.addLayout(fields)
        column.addWidget(self.outcome)
        column.addLayout(ends)


class _Amount(QDoubleSpinBox):
    """Wheels pass by unless it has the focus: every value starts a search."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        super().wheelEvent(event) if self.hasFocus() else event.ignore()


def told(proposal: Proposal) -> Sentence:
    """What a mix comes to, beside the recipe it is made of."""
    values = {
        "bits": figures.number(proposal.bits, 3),
        "size": figures.bytes_of(proposal.plan.predicted_bytes),
        "damage": figures.number(proposal.damage),
        "before": figures.number(proposal.base_bits, 3),
        "damage_before": figures.number(proposal.base_damage),
    }
    result = Sentence(
        "{bits} bits on average, {size}. Predicted damage {damage} nats; the recipe alone: {damage_before} at {before} "
        "bits.", values,
    )  # fmt: skip
    if not (count := len(proposal.unmeasured)):
        return result
    problem = Sentence(
        "{count} {count:layer has|layers have} no sensitivity and {count:keeps|keep} the recipe's choice.",
        {"count": count},
    )
    return Sentence("{result} {problem}", {"result": result, "problem": problem})
