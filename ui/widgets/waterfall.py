"""Where the memory goes: parts under each other, each beginning where the last ended; estimates are outlined."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import language, theme
from workbench import figures
from workbench.words import Sentence

ROW = 26
BAR = 12
APART = 12  # between names, bars and sizes


@dataclass(frozen=True)
class Part:
    """One row: its name, its estimated bytes, the engine's own figure once known, and the token of its colour."""

    name: Sentence
    estimate: int | None
    measured: int | None = None
    colour: str = "muted"


class Waterfall(QWidget):
    """Parts of `total` bytes; what goes beyond the total is drawn in the colour of rejection."""

    def __init__(self):
        super().__init__()
        self._parts: tuple[Part, ...] = ()
        self._total = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        language.changed.connect(self._tell)

    def show_parts(self, parts: Sequence[Part], total: int) -> None:
        if (tuple(parts), total) == (self._parts, self._total):
            return
        grown = len(parts) != len(self._parts)
        self._parts, self._total = tuple(parts), total
        if grown:
            self.updateGeometry()
        self._tell()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    def sizeHint(self) -> QSize:
        return QSize(420, max(1, len(self._parts)) * ROW)

    def minimumSizeHint(self) -> QSize:
        return QSize(240, self.sizeHint().height())

    def _tell(self) -> None:
        rows = (f"{part.name} {figures.bytes_of(_known(part))}" for part in self._parts)
        self.setAccessibleDescription(", ".join(rows))
        self.update()

    def paintEvent(self, event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metrics = QFontMetrics(self.font())
        names = [str(part.name) for part in self._parts]
        sizes = [figures.bytes_of(_known(part)) for part in self._parts]
        left = max(map(metrics.horizontalAdvance, names), default=0) + APART
        beside = max(map(metrics.horizontalAdvance, sizes), default=0) + APART
        width = max(40, self.width() - left - beside)
        used = sum(_known(part) or 0 for part in self._parts)
        scale = width / max(self._total, used, 1)
        begin = 0.0
        for index, part in enumerate(self._parts):
            top = index * ROW
            whole = QRectF(0, top, self.width(), ROW)
            painter.setPen(QColor(worn.muted))
            painter.drawText(whole, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, names[index])
            painter.setPen(QColor(worn.text))
            painter.drawText(whole, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, sizes[index])
            size = _known(part)
            track = QRectF(left, top + ROW / 2 - 0.5, width, 1)
            painter.fillRect(track, QColor(worn.line))
            if size is None:
                continue
            self._bar(painter, part, left + begin * scale, scale, top + (ROW - BAR) / 2)
            begin += size
        if self._total and used > self._total:
            self._limit(painter, left + self._total * scale)

    def _bar(self, painter: QPainter, part: Part, x: float, scale: float, top: float) -> None:
        colour = QColor(getattr(theme.tokens(), part.colour))
        if part.measured is not None:
            filled = QRectF(x, top, max(2.0, part.measured * scale), BAR)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour)
            painter.drawRoundedRect(filled, 2, 2)
        if part.estimate is not None:
            outline = QRectF(x, top, max(3.0, part.estimate * scale), BAR).adjusted(0.75, 0.75, -0.75, -0.75)
            painter.setPen(QPen(colour, 1.5))
            if part.measured is None:
                painter.setBrush(QColor(theme.tokens().soft(part.colour)))
            else:
                painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(outline, 2, 2)

    def _limit(self, painter: QPainter, x: float) -> None:
        painter.setPen(QPen(QColor(theme.tokens().rejected), 1.5, Qt.PenStyle.DashLine))
        painter.drawLine(int(x), 0, int(x), self.height())


def _known(part: Part) -> int | None:
    return part.estimate if part.measured is None else part.measured
