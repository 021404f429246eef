"""Content that scrolls up and down where there is too little room for it, and is never cut at the sides."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget


class Scrolled(QScrollArea):
    """`body` takes the content. `least` is the height in pixels below which it does not shrink."""

    def __init__(self, least: int = 120):
        super().__init__(widgetResizable=True)
        self._least = least
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        inside = QWidget()
        # As wide as there is room, whatever it asks for: content that takes other columns, and with them another least
        # width, on becoming as wide as it asked would otherwise be resized to and fro until the stack is full.
        inside.setMinimumWidth(1)
        self.body = QVBoxLayout(inside)
        self.body.setContentsMargins(0, 0, 0, 0)
        self.body.setSpacing(8)
        self.setWidget(inside)
        self.viewport().setAutoFillBackground(False)
        inside.setAutoFillBackground(False)

    def minimumSizeHint(self) -> QSize:
        inside = self.widget().minimumSizeHint()
        bar = self.verticalScrollBar().sizeHint().width()
        return QSize(inside.width() + bar, min(inside.height(), self._least))
