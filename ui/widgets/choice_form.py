"""How one linear layer is quantized, as a form, and for which layers the choice holds."""

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QGridLayout, QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label
from ui.widgets.scheme import METHODS
from workbench.recipe import Choice
from workbench.words import Sentence

BITS = ((4, Sentence("4 bit")), (8, Sentence("8 bit")))
GROUPS = ((0, Sentence("Largest that fits")), (32, "32"), (64, "64"), (128, "128"), (-1, Sentence("Whole row")))
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
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(2)
        self.method = self._combo(0, "Method", tuple((value, names[0]) for value, names in METHODS.items()))
        self.bits = self._combo(1, "Bits", BITS)
        self.group = self._combo(2, "Group", GROUPS)
        self.symmetric = self._combo(3, "Grid", GRIDS)
        self.order = self._combo(4, "Order", ORDERS)
        self.scope = self._combo(5, "Holds for", SCOPES)
        self.remark = label(role="caption", wrap=True)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        whole.addLayout(self._grid)
        whole.addWidget(self.remark)
        language.changed.connect(self._speak)
        self._speak()

    def show_choice(self, choice: Choice | None, siblings: tuple[str, ...] = ()) -> None:
        """Show `choice`; `siblings` are the layers that vLLM fuses with this one, so they change with it."""
        self._shown, self._siblings = choice, siblings
        for box in (self.method, self.bits, self.group, self.symmetric, self.order):
            box.setEnabled(choice is not None)
        if siblings:
            language.bind(
                self.remark.setText, "{names} load as one in vLLM and change together.", names=", ".join(siblings)
            )
        else:
            language.release(self.remark.setText)
            self.remark.clear()
        self.remark.setVisible(bool(siblings))
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
        self._set_enabled(choice)

    @property
    def everywhere(self) -> bool:
        return bool(self.scope.currentData())

    def _combo(self, place: int, title: str, options: Options) -> QComboBox:
        box = QComboBox()
        for value, _ in options:
            box.addItem("", value)
        self._options[box] = options
        box.setMinimumContentsLength(8)
        box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        language.bind(box.setAccessibleName, title)
        if options is not SCOPES:
            box.activated.connect(self._on_activated)
        row, column = divmod(place, 3)
        head = label(title, "caption")
        head.setBuddy(box)
        self._grid.addWidget(head, row * 2, column)
        self._grid.addWidget(box, row * 2 + 1, column)
        self._grid.setColumnStretch(column, 1)
        return box

    def _on_activated(self) -> None:
        if self._shown is None:
            return
        chosen = replace(
            self._shown,
            method=self.method.currentData(),
            bits=self.bits.currentData(),
            group_size=self.group.currentData(),
            # vLLM has no 8-bit kernel with zero points.
            symmetric=self.symmetric.currentData() or self.bits.currentData() == 8,
            order=self.order.currentData(),
        )
        if chosen != self._shown:
            self.show_choice(chosen, self._siblings)
            self.changed.emit(chosen, self.everywhere)

    def _set_enabled(self, choice: Choice) -> None:
        """What has no meaning for the method is off."""
        for box in (self.bits, self.group):
            box.setEnabled(not choice.kept)
        self.symmetric.setEnabled(not choice.kept and choice.bits == 4)
        self.order.setEnabled(choice.method in ("gptq", "awq+gptq"))

    def _speak(self) -> None:
        for box, options in self._options.items():
            for index, (_, words) in enumerate(options):
                box.setItemText(index, str(words))
