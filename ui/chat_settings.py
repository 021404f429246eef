"""What the next answer is asked with."""

from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QHBoxLayout, QSpinBox, QWidget

from ui import language
from ui.widgets.label import label
from ui.widgets.optional_number import MARGINS
from workbench.engine.client import Sampling
from workbench.words import say

ORDERS = ("One after the other", "Both at once")


class ChatSettings(QWidget):
    """Temperature, longest answer, and in which order two engines are asked: apart, so that their times are true."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = QDoubleSpinBox(minimum=0.0, maximum=2.0, singleStep=0.1, decimals=2, value=0.0)
        self.longest = QSpinBox(minimum=1, maximum=131_072, singleStep=64, value=256)
        for box in (self.temperature, self.longest):
            box.lineEdit().setTextMargins(*MARGINS)
        self.order = QComboBox()
        self.order.addItems(ORDERS)
        for box, name in (
            (self.temperature, "Temperature"),
            (self.longest, "Longest answer, tokens"),
            (self.order, "Ask both"),
        ):
            language.bind(box.setAccessibleName, name)
        self._order_name = label("Ask both", "caption")
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(8)
        line.addWidget(label("Temperature", "caption"))
        line.addWidget(self.temperature)
        line.addSpacing(8)
        line.addWidget(label("Longest answer, tokens", "caption"))
        line.addWidget(self.longest)
        line.addSpacing(8)
        line.addWidget(self._order_name)
        line.addWidget(self.order)
        line.addStretch(1)
        language.changed.connect(self._name_orders)
        self._name_orders()

    @property
    def together(self) -> bool:
        return self.order.currentIndex() == 1

    def chosen(self) -> Sampling:
        return Sampling(max_tokens=self.longest.value(), temperature=round(self.temperature.value(), 2))

    def show_order(self, two: bool) -> None:
        """The order matters only with two engines."""
        self._order_name.setVisible(two)
        self.order.setVisible(two)

    def _name_orders(self) -> None:
        self.order.setItemText(0, say("One after the other"))
        self.order.setItemText(1, say("Both at once"))
        self.order.setToolTip(say("Asked at once, each engine slows the other: the times are then not their own."))
