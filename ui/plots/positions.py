"""How often the draft token at each position was accepted: a small bar a position and side."""

from collections.abc import Mapping

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import language, theme
from ui.plots import looks
from workbench import figures
from workbench.words import say

HEIGHT = 44
FOOT = 15


class PositionBars(QWidget):
    """Filled bars are the original's, outlined ones the quantized's; the number below is the position."""

    def __init__(self):
        super().__init__()
        self._shares: dict[str, tuple[float, ...]] = {}
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        language.changed.connect(self._tell)

    def show_shares(self, shares: Mapping[str, tuple[float, ...]]) -> None:
        """Shares of 1 by side and position; a side without any is left out."""
        shown = {side: values for side, values in shares.items() if values}
        if shown != self._shares:
            self._shares = shown
            self._tell()

    @property
    def shares(self) -> dict[str, tuple[float, ...]]:
        return self._shares

    def sizeHint(self) -> QSize:
        return QSize(200, HEIGHT + FOOT)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, HEIGHT + FOOT)

    def _tell(self) -> None:
        texts = (", ".join(map(figures.percent, values)) for values in self._shares.values())
        self.setAccessibleName(say("Accepted by draft position: {shares}", shares=" | ".join(texts)))
        self.update()

    def paintEvent(self, event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = QFont(self.font())
        font.setPixelSize(11)
        painter.setFont(font)
        painter.fillRect(QRectF(0, HEIGHT, self.width(), 1), QColor(worn.line))
        positions = max(map(len, self._shares.values()), default=0)
        if not positions:
            return
        place = min(64.0, self.width() / positions)
        bar = min(16.0, (place - 10) / max(1, len(self._shares)))
        for position in range(positions):
            x = position * place
            painter.setPen(QColor(worn.muted))
            painter.drawText(QRectF(x, HEIGHT + 1, place, FOOT), Qt.AlignmentFlag.AlignCenter, str(position + 1))
            left = x + (place - bar * len(self._shares)) / 2
            for index, (side, values) in enumerate(self._shares.items()):
                if position < len(values):
                    self._bar(painter, side, left + index * bar, bar - 2, values[position])

    def _bar(self, painter: QPainter, side: str, x: float, width: float, share: float) -> None:
        colour = looks.colour(side)
        height = max(1.5, min(share, 1.0) * (HEIGHT - 4))
        place = QRectF(x, HEIGHT - height, width, height)
        painter.setPen(QPen(colour, 1.4))
        painter.setBrush(colour if looks.is_filled(side) else QColor(theme.tokens().soft(looks.side_of(side), 0.25)))
        painter.drawRect(place.adjusted(0.7, 0.7, -0.7, 0))
