"""Small drawn instruments for one line: a filled bar and a trace of the last minute."""

from collections import deque

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from ui import theme


class Meter(QWidget):
    """A bar filled to `share` of 1; empty when that is not known."""

    def __init__(self, width: int = 96):
        super().__init__()
        self._share: float | None = None
        self.setFixedSize(width, 8)
        theme.changed.connect(self.update)

    def set_share(self, share: float | None) -> None:
        self._share = None if share is None else max(0.0, min(1.0, share))
        self.update()

    def paintEvent(self, _event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(0, 0, 0, 0)))
        painter.setBrush(QColor(worn.line))
        painter.drawRoundedRect(QRectF(self.rect()), 3, 3)
        if self._share:
            painter.setBrush(QColor(worn.rejected if self._share > 0.95 else worn.muted))
            painter.drawRoundedRect(QRectF(0, 0, max(6.0, self.width() * self._share), self.height()), 3, 3)


class Trace(QWidget):
    """The last 60 values between 0 and 1, newest at the right; gaps stay gaps."""

    def __init__(self):
        super().__init__()
        self._values: deque[float | None] = deque(maxlen=60)
        self.setFixedSize(QSize(64, 18))
        theme.changed.connect(self.update)

    def add(self, share: float | None) -> None:
        self._values.append(share)
        self.update()

    def paintEvent(self, _event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(worn.line), 1))
        painter.drawLine(0, self.height() - 1, self.width(), self.height() - 1)
        painter.setPen(QPen(QColor(worn.text), 1.2))
        step = self.width() / 59
        line: list[QPointF] = []
        for index, value in enumerate(reversed(self._values)):
            if value is not None:
                line.append(QPointF(self.width() - index * step, (1 - value) * (self.height() - 3) + 1))
                continue
            painter.drawPolyline(QPolygonF(line))
            line = []
        painter.drawPolyline(QPolygonF(line))
