"""A figure of the last minutes as a small line without axes; what was not measured is a gap."""

from collections.abc import Iterable

from PySide6.QtCore import QPointF, QSize
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import theme

SPAN_S = 120.0
HEIGHT = 32


class Sparkline(QWidget):
    """`colour` is the name of a theme token. The line ends at the newest point, its highest is as high as the place."""

    def __init__(self, colour: str):
        super().__init__()
        self._colour = colour
        self._points: tuple[tuple[float, float | None], ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def points(self) -> tuple[tuple[float, float | None], ...]:
        return self._points

    def show_points(self, points: Iterable[tuple[float, float | None]]) -> None:
        """Show points (at_s, value) of the last SPAN_S seconds."""
        given = tuple(points)
        begin_s = given[-1][0] - SPAN_S if given else 0.0
        shown = tuple(point for point in given if point[0] >= begin_s)
        if shown != self._points:
            self._points = shown
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, HEIGHT)

    def paintEvent(self, event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        floor = self.height() - 1.5
        painter.setPen(QPen(QColor(worn.line), 1))
        painter.drawLine(QPointF(0, floor), QPointF(self.width(), floor))
        known = [value for _, value in self._points if value is not None]
        top = max(known, default=0.0) or 1.0
        line, begun = QPainterPath(), False
        for at_s, value in self._points:
            if value is None:
                begun = False
                continue
            x = self.width() * (1 - (self._points[-1][0] - at_s) / SPAN_S)
            place = QPointF(x, floor - (floor - 2) * value / top)
            line.lineTo(place) if begun else line.moveTo(place)
            begun = True
        painter.setPen(QPen(QColor(getattr(worn, self._colour)), 1.6))
        painter.drawPath(line)
