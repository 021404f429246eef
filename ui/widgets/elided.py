"""A line that ends in an ellipsis where it does not fit; the tooltip holds all of it."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from ui.widgets.label import restyle


class Elided(QLabel):
    """`full` is the whole text; `text()` is what is seen of it. `role` is one of label.ROLES."""

    def __init__(self, role: str = "body"):
        super().__init__()
        self.full = ""
        restyle(self, "role", role)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def show_text(self, text: str) -> None:
        self.full = text
        self.setAccessibleName(text)
        self.setToolTip(text)
        self.updateGeometry()
        self._fit()

    def sizeHint(self) -> QSize:
        self.ensurePolished()
        return QSize(self.fontMetrics().horizontalAdvance(self.full) + 2, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(40, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        self.ensurePolished()
        seen = self.fontMetrics().elidedText(self.full, Qt.TextElideMode.ElideRight, max(self.width(), 40))
        if seen != self.text():
            self.setText(seen)
