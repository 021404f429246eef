"""How full the KV cache is: used of all blocks as one bar a side. Only usage is known, not which block holds what."""

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import theme
from ui.plots import looks

ROW = 14
GAP = 6
MARK = 10


@dataclass(frozen=True, slots=True)
class Share:
    """One bar: the side it belongs to, and parts of it as (token name, share of 1)."""

    side: str
    parts: tuple[tuple[str, float], ...]


class ShareBars(QWidget):
    """Thin bars under each other, each led by its side's mark: a filled circle, or an open diamond."""

    def __init__(self):
        super().__init__()
        self._rows: tuple[Share, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def rows(self) -> tuple[Share, ...]:
        return self._rows

    def show_shares(self, rows: tuple[Share, ...]) -> None:
        if rows != self._rows:
            grown = len(rows) != len(self._rows)
            self._rows = rows
            if grown:
                self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        count = max(1, len(self._rows))
        return QSize(200, count * ROW + (count - 1) * GAP)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.sizeHint().height())

    def paintEvent(self, event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        start = max((name_width(row.side, self) for row in self._rows), default=0)
        for index, row in enumerate(self._rows):
            top = index * (ROW + GAP)
            paint_name(painter, row.side, top + ROW / 2, self)
            bar = QRectF(start, top + 1, self.width() - start - 1, ROW - 2)
            outline = QPainterPath()
            outline.addRoundedRect(bar, 3, 3)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.fillPath(outline, QColor(worn.line))
            painter.save()
            painter.setClipPath(outline)
            left = bar.left()
            for name, share in row.parts:
                # What is not nothing must be seen: at least two pixels.
                width = max(2.0, bar.width() * min(share, 1.0)) if share > 0 else 0.0
                painter.fillRect(QRectF(left, bar.top(), width, bar.height()), QColor(getattr(worn, name)))
                left += width
            painter.restore()


def name_width(key: str, widget: QWidget) -> int:
    """Room for what `paint_name` paints, with a gap behind it."""
    word = str(looks.leg_word(key))
    return MARK + 8 + (QFontMetrics(_small(widget)).horizontalAdvance(word) + 4 if word else 0)


def paint_name(painter: QPainter, key: str, y: float, widget: QWidget) -> None:
    """The side's mark at the left edge, and the leg's name behind it where there is one."""
    paint_mark(painter, key, 1 + MARK / 2, y)
    if word := str(looks.leg_word(key)):
        painter.setFont(_small(widget))
        painter.setPen(looks.colour(key))
        where = QRectF(MARK + 4, y - ROW / 2, name_width(key, widget), ROW)
        painter.drawText(where, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, word)


def _small(widget: QWidget) -> QFont:
    font = QFont(widget.font())
    font.setPixelSize(11)
    return font


def paint_mark(painter: QPainter, key: str, x: float, y: float, size: float = 8) -> None:
    """The side's own mark, so that colour never stands alone."""
    colour = looks.colour(key)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(colour, 1.6))
    half = size / 2
    if looks.is_filled(key):
        painter.setBrush(colour)
        painter.drawEllipse(QRectF(x - half + 0.5, y - half + 0.5, size - 1, size - 1))
    else:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        path = QPainterPath()
        path.moveTo(x, y - half)
        path.lineTo(x + half, y)
        path.lineTo(x, y + half)
        path.lineTo(x - half, y)
        path.closeSubpath()
        painter.drawPath(path)
    painter.restore()
