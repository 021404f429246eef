"""Which colour stands for how many bits, and how many layers have them."""

from collections.abc import Mapping

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import language, theme
from ui.widgets.error_scale import width_color
from workbench.words import say

SQUARE, GAP, SPACE = 10, 5, 12


class WidthLegend(QWidget):
    """Shows `counts`, layers by bits."""

    def __init__(self):
        super().__init__()
        self._counts: Mapping[int, int] = {}
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        language.changed.connect(self._speak)

    def show_counts(self, counts: Mapping[int, int]) -> None:
        self._counts = dict(counts)
        self._speak()

    @property
    def words(self) -> list[str]:
        return [say("{bits} bit × {count}", bits=bits, count=count) for bits, count in self._counts.items()]

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self._small())
        width = sum(SQUARE + GAP + metrics.horizontalAdvance(text) + SPACE for text in self.words)
        return QSize(width, max(metrics.height(), SQUARE))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, left = QPainter(self), 0
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self._small())
        metrics = painter.fontMetrics()
        for bits, text in zip(self._counts, self.words, strict=True):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(width_color(bits))
            painter.drawRoundedRect(QRectF(left, (self.height() - SQUARE) / 2, SQUARE, SQUARE), 2, 2)
            painter.setPen(theme.tokens().muted)
            left += SQUARE + GAP
            wide = metrics.horizontalAdvance(text)
            painter.drawText(QRectF(left, 0, wide + 2, self.height()), Qt.AlignmentFlag.AlignVCenter, text)
            left += wide + SPACE

    def _small(self):
        font = self.font()
        font.setPixelSize(11)
        return font

    def _speak(self) -> None:
        self.setAccessibleName(" · ".join(self.words))
        self.updateGeometry()
        self.update()
