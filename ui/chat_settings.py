"""What the next answer is asked with."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QSpinBox, QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label
from ui.widgets.line import line
from ui.widgets.optional_number import MARGINS
from ui.widgets.reflow import Reflow
from workbench.chat import defaults
from workbench.engine.sampling import Sampling
from workbench.words import Sentence, say

ORDERS = ("One after the other", "Both at once")


class ChatSettings(QWidget):
    """Temperature, least probability, longest answer, the model's own values, and the order of two engines.

    One after the other by default, so that their times are true.
    """

    def __init__(self) -> None:
        super().__init__()
        self.temperature = QDoubleSpinBox(minimum=0.0, maximum=2.0, singleStep=0.1, decimals=2, value=0.0)
        self.longest = QSpinBox(minimum=1, maximum=131_072, singleStep=64, value=256)
        self.least = QDoubleSpinBox(minimum=0.0, maximum=1.0, singleStep=0.01, decimals=2, value=0.0)
        for box in (self.temperature, self.least, self.longest):
            box.lineEdit().setTextMargins(*MARGINS)
        self.order = QComboBox()
        self.order.addItems(ORDERS)
        for box, name in (
            (self.temperature, "Temperature"),
            (self.least, "min_p"),
            (self.longest, "Longest answer, tokens"),
            (self.order, "Ask both"),
        ):
            language.bind(box.setAccessibleName, name)
        self.own = QCheckBox(checked=True)
        self._own: defaults.Values = {}
        self.own.hide()
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        self._least_name = label("min_p", "caption")
        self._order = line(label("Ask both", "caption"), self.order)
        fields = Reflow(4, 2, across=16, stretch=(0, 0, 0, 1))
        fields.add(
            line(label("Temperature", "caption"), self.temperature, None),
            line(self._least_name, self.least, None),
            line(label("Longest answer, tokens", "caption"), self.longest, None),
            line(self._order, None),
        )
        whole.addWidget(fields)
        whole.addWidget(self.own, 0, Qt.AlignmentFlag.AlignLeft)
        language.changed.connect(self._name_orders)
        self._name_orders()
        self.show_speculation(False)

    @property
    def together(self) -> bool:
        return self.order.currentIndex() == 1

    def chosen(self) -> Sampling:
        least = round(self.least.value(), 2) if self.least.isEnabled() else 0.0
        chosen = Sampling(
            max_tokens=self.longest.value(), temperature=round(self.temperature.value(), 2), min_p=least or None
        )
        return defaults.in_force(chosen, self._own, self.own.isChecked())

    def show_own(self, own: defaults.Values) -> None:
        """The values that the model brings along."""
        self._own = own
        values = defaults.open_values(own)
        self.own.setVisible(bool(values))
        for setter in (self.own.setText, self.own.setAccessibleName):
            language.bind(setter, "{values} (model)", values=values)
        why = Sentence("The model's own values, for all that is not chosen here; unchecked they are left out.")
        for setter in (self.own.setToolTip, self.own.setAccessibleDescription):
            language.show(setter, why)

    def show_speculation(self, speculates: bool) -> None:
        """An engine that drafts refuses requests with min_p; the number stays for when none drafts."""
        self.least.setEnabled(not speculates)
        if speculates:
            language.bind(self._least_name.setText, "min_p (off: drafting)")
            why = Sentence("vLLM refuses min_p while it speculates. Serve without drafting to use it.")
        else:
            language.bind(self._least_name.setText, "min_p")
            why = Sentence("Tokens less likely than this share of the likeliest one are left out; 0 leaves out none.")
        for setter in (self.least.setToolTip, self.least.setAccessibleDescription):
            language.show(setter, why)

    def show_order(self, two: bool) -> None:
        """The order matters only with two engines."""
        self._order.setVisible(two)

    def _name_orders(self) -> None:
        self.order.setItemText(0, say("One after the other"))
        self.order.setItemText(1, say("Both at once"))
        self.order.setToolTip(say("Asked at once, each engine slows the other: the times are then not their own."))
