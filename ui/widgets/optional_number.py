"""A number that may be left to the engine."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox

from ui import language

MARGINS = (6, 0, 0, 0)  # as a line of text has them


class OptionalNumber(QSpinBox):
    """A whole number; 0 reads "automatic" and is None. Wheels pass by unless it has the focus."""

    def __init__(self, most: int, step: int = 1, otherwise: str = "automatic"):
        super().__init__()
        self.setRange(0, most)
        self.setSingleStep(step)
        self.setGroupSeparatorShown(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.lineEdit().setTextMargins(*MARGINS)
        language.bind(self.setSpecialValueText, otherwise)

    @property
    def number(self) -> int | None:
        return self.value() or None

    def show_number(self, number: int | None) -> None:
        self.setValue(number or 0)

    def wheelEvent(self, event) -> None:
        super().wheelEvent(event) if self.hasFocus() else event.ignore()


class OptionalAmount(QDoubleSpinBox):
    """As OptionalNumber, with decimals."""

    def __init__(self, most: float, step: float, decimals: int = 2, otherwise: str = "automatic"):
        super().__init__()
        self.setDecimals(decimals)
        self.setRange(0, most)
        self.setSingleStep(step)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.lineEdit().setTextMargins(*MARGINS)
        language.bind(self.setSpecialValueText, otherwise)

    @property
    def number(self) -> float | None:
        return self.value() or None

    def show_number(self, number: float | None) -> None:
        self.setValue(number or 0.0)

    def wheelEvent(self, event) -> None:
        super().wheelEvent(event) if self.hasFocus() else event.ignore()
