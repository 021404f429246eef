"""The choice of what the sensitivity view shows, and the chosen layer's figures at every width."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QComboBox, QGridLayout, QHBoxLayout, QWidget

from ui import language
from ui.quantize.heat import DAMAGE, ERROR, figures_at
from ui.widgets.button import button
from ui.widgets.label import label
from workbench.choice import BITS
from workbench.quant_events import SensitivityMeasured
from workbench.words import Sentence

MEASURES = ((DAMAGE, Sentence("Predicted damage")), (ERROR, Sentence("Output error")))


class SensitivityChoice(QWidget):
    """What colours the layers: `measure`, and at which `bits`. `changed` when the user chose another."""

    changed = Signal()

    def __init__(self):
        super().__init__()
        self._combo = QComboBox()
        language.bind(self._combo.setAccessibleName, "Measure")
        for value, words in MEASURES:
            self._combo.addItem(str(words), value)
        self._combo.activated.connect(self.changed)
        self._widths = QButtonGroup(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(self._combo)
        row.addSpacing(4)
        row.addWidget(label("at bits", "caption"))
        for bits in BITS:
            made = button("{bits} bit", kind="quiet", bits=bits)
            language.release(made.setText)
            made.setText(str(bits))
            made.setProperty("square", True)
            made.setCheckable(True)
            made.setChecked(bits == 4)
            self._widths.addButton(made, bits)
            row.addWidget(made)
        row.addStretch(1)
        self._widths.idClicked.connect(self.changed)
        language.changed.connect(self._speak)

    @property
    def measure(self) -> str:
        return self._combo.currentData()

    @property
    def bits(self) -> int:
        return self._widths.checkedId()

    def _speak(self) -> None:
        for index, (_value, words) in enumerate(MEASURES):
            self._combo.setItemText(index, str(words))


class SensitivityFigures(QWidget):
    """One layer's output error and damage at 2, 3, 4 and 8 bits."""

    def __init__(self):
        super().__init__()
        self.name = label(role="caption")
        self.cells = {bits: (label(), label()) for bits in BITS}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 4, 0, 0)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(0)
        grid.addWidget(self.name, 0, 0)
        grid.addWidget(label("output SQNR, dB", "caption"), 1, 0)
        grid.addWidget(label("damage, mnat", "caption"), 2, 0)
        grid.setColumnStretch(0, 1)
        for column, (bits, pair) in enumerate(self.cells.items(), 1):
            heads = (label("{bits} bit", "caption", bits=bits), *pair)
            for row, each in enumerate(heads):
                each.setAlignment(Qt.AlignmentFlag.AlignRight)
                each.setMinimumWidth(44)
                grid.addWidget(each, row, column)

    def show_layer(self, column: str, found: SensitivityMeasured | None) -> None:
        """`column` is the layer's name within its block."""
        self.name.setText(f"{found.block} · {column}" if found else column)
        for bits, pair in self.cells.items():
            for each, figure in zip(pair, figures_at(found, bits) if found else ("–", "–"), strict=True):
                each.setText(figure)
