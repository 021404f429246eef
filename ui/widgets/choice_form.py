"""How one linear layer is quantized, as a form, and for which layers the choice holds."""

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from ui import language
from ui.widgets.label import label
from ui.widgets.optional_number import MARGINS
from ui.widgets.reflow import Reflow
from ui.widgets.scheme import METHODS
from workbench.recipe import BITS, Choice
from workbench.words import Sentence

WIDTHS = tuple((bits, Sentence("{bits} bit", {"bits": bits})) for bits in reversed(BITS))
GROUPS = ((0, Sentence("Automatic")), (32, "32"), (64, "64"), (128, "128"), (-1, Sentence("Whole row")))
GRIDS = ((True, Sentence("Symmetric")), (False, Sentence("With zero point")))
ORDERS = (("static", Sentence("By activation")), ("none", Sentence("As stored")))
SCOPES = ((False, Sentence("This module")), (True, Sentence("All blocks")))
Options = tuple[tuple[Any, Sentence | str], ...]


class ChoiceForm(QWidget):
    """Shows a Choice; `changed(choice, everywhere)` says what the user made of it, never what was only shown."""

    changed = Signal(object, bool)

    def __init__(self):
        super().__init__()
        self._shown: Choice | None = None
        self._siblings: tuple[str, ...] = ()
        self._options: dict[QComboBox, Options] = {}
        self._spun = 0.0
        self._fields = Reflow(4, 3, 2, 1, down=2)
        self.method = self._combo("Method", tuple((value, names[0]) for value, names in METHODS.items()))
        self.bits = self._combo("Bits", WIDTHS)
        self.group = self._combo("Group", GROUPS)
        language.bind(
            self.group.setToolTip, "Automatic: 128 where that divides all inputs of this part of the model, else less"
        )
        self.symmetric = self._combo("Grid", GRIDS)
        self.order = self._combo("Order", ORDERS)
        self.damping = self._damping()
        self.clip, self.scale, self.refine = self._check("Clip"), self._check("Scale"), self._check("Refine")
        language.bind(self.clip.setToolTip, "Search how far each group's range is clipped")
        language.bind(self.scale.setToolTip, "Search AWQ's scale of the input channels")
        language.bind(
            self.refine.setToolTip, "Fit GPTQ's scales to its integers and the integers to the scales, in turn"
        )
        self._searches()
        self.scope = self._combo("Holds for", SCOPES)
        self.remark = label(role="caption", wrap=True)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        whole.addWidget(self._fields)
        whole.addWidget(self.remark)
        language.changed.connect(self._speak)
        self._speak()

    def show_choice(
        self, choice: Choice | None, siblings: tuple[str, ...] = (), everywhere: bool | None = None
    ) -> None:
        """Show `choice`; `siblings` are the layers that vLLM fuses with this one, so they change with it.

        `everywhere` is for which layers it holds; None leaves that as the user set it.
        """
        self._shown, self._siblings = choice, siblings
        if siblings:
            language.bind(
                self.remark.setText, "{names} load as one in vLLM and change together.", names=", ".join(siblings)
            )
        else:
            language.release(self.remark.setText)
            self.remark.clear()
        self.remark.setVisible(bool(siblings))
        if everywhere is not None:
            self.scope.setCurrentIndex(self.scope.findData(everywhere))
        self._set_enabled(choice)
        if choice is None:
            return
        shown = {
            self.method: choice.method,
            self.bits: choice.bits,
            self.group: choice.group_size,
            self.symmetric: choice.symmetric,
            self.order: choice.order,
        }
        for box, value in shown.items():
            box.setCurrentIndex(box.findData(value))
        for box, checked in ((self.clip, choice.clip), (self.scale, choice.scale), (self.refine, choice.refine)):
            box.setChecked(checked)
        self.damping.blockSignals(True)
        self.damping.setValue(choice.damping * 100)
        self.damping.blockSignals(False)
        self._spun = self.damping.value()

    @property
    def everywhere(self) -> bool:
        return bool(self.scope.currentData())

    def _field(self, title: str, content: QWidget) -> None:
        """A caption and what it names."""
        field = QWidget()
        column = QVBoxLayout(field)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        head = label(title, "caption")
        head.setBuddy(content)
        column.addWidget(head)
        column.addWidget(content)
        column.addStretch(1)  # captions of one line stand on one height
        field.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self._fields.add(field)

    def _combo(self, title: str, options: Options) -> QComboBox:
        box = QComboBox()
        for value, _ in options:
            box.addItem("", value)
        self._options[box] = options
        box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        language.bind(box.setAccessibleName, title)
        box.activated.connect(self._on_scope if options is SCOPES else self._on_changed)
        self._field(title, box)
        return box

    def _damping(self) -> QDoubleSpinBox:
        """In percent of the mean of the Hessian's diagonal."""
        spin = QDoubleSpinBox()
        spin.setRange(0.01, 100)
        spin.setDecimals(2)
        spin.setSingleStep(0.5)
        spin.setSuffix(" %")
        spin.setKeyboardTracking(False)
        spin.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        spin.lineEdit().setTextMargins(*MARGINS)
        language.bind(spin.setAccessibleName, "Damping")
        spin.valueChanged.connect(self._on_changed)
        self._field("Damping", spin)
        return spin

    def _check(self, title: str) -> QCheckBox:
        box = QCheckBox()
        language.bind(box.setText, title)
        box.clicked.connect(self._on_changed)
        return box

    def _searches(self) -> None:
        both = QWidget()
        row = QHBoxLayout(both)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        for box in (self.clip, self.scale, self.refine):
            row.addWidget(box)
        row.addStretch(1)
        both.setMinimumHeight(self.method.sizeHint().height())
        self._field("Search", both)

    def _on_changed(self) -> None:
        if self._shown is None:
            return
        bits, spun = self.bits.currentData(), self.damping.value()
        chosen = replace(
            self._shown,
            method=self.method.currentData(),
            bits=bits,
            group_size=self.group.currentData(),
            # vLLM has no 8-bit kernel with zero points.
            symmetric=self.symmetric.currentData() or bits == 8,
            order=self.order.currentData(),
            clip=self.clip.isChecked(),
            scale=self.scale.isChecked(),
            refine=self.refine.isChecked(),
            damping=round(spun / 100, 4) if spun != self._spun else self._shown.damping,  # shown rounded, kept whole
        )
        if chosen != self._shown:
            self.show_choice(chosen, self._siblings)
            self.changed.emit(chosen, self.everywhere)

    def _on_scope(self) -> None:
        if self._shown is not None:
            self.changed.emit(self._shown, self.everywhere)

    def _set_enabled(self, choice: Choice | None) -> None:
        """What has no meaning for the method is off."""
        self.method.setEnabled(choice is not None)
        quantized = choice is not None and not choice.kept
        for box in (self.bits, self.group, self.clip):
            box.setEnabled(quantized)
        self.symmetric.setEnabled(quantized and choice.bits < 8)
        for box in (self.order, self.damping, self.refine):
            box.setEnabled(quantized and "gptq" in choice.method)
        self.scale.setEnabled(quantized and "awq" in choice.method)

    def _speak(self) -> None:
        for box, options in self._options.items():
            for index, (_, words) in enumerate(options):
                box.setItemText(index, str(words))
