"""How long each part of an engine's start took: segments in proportion, their names and seconds below."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import language, theme
from workbench import figures
from workbench.words import Sentence, say

BAR = 8
NARROWEST = 64
STRENGTHS = (0.38, 0.58, 0.78, 1.0)


@dataclass(frozen=True)
class Segment:
    """One phase: its name, its seconds so far, and whether it still runs."""

    name: Sentence
    seconds: float
    running: bool = False


class StartTimeline(QWidget):
    """One engine's start in its side's colour, later phases stronger; a running phase is hatched."""

    def __init__(self, side: str):
        super().__init__()
        self._side = side
        self._segments: tuple[Segment, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        language.changed.connect(self._tell)

    def show_segments(self, segments: Sequence[Segment]) -> None:
        if tuple(segments) != self._segments:
            self._segments = tuple(segments)
            self._tell()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    def sizeHint(self) -> QSize:
        return QSize(420, BAR + 6 + 34)

    def minimumSizeHint(self) -> QSize:
        return QSize(NARROWEST * 4, self.sizeHint().height())

    def _tell(self) -> None:
        parts = (f"{part.name} {figures.seconds(part.seconds)} s" for part in self._segments)
        self.setAccessibleDescription(", ".join(parts))
        self.update()

    def paintEvent(self, event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if not self._segments:
            painter.setBrush(QColor(worn.line))
            painter.drawRoundedRect(QRectF(0, 0, self.width(), BAR), 3, 3)
            return
        small = QFont(self.font())
        small.setPixelSize(11)
        for index, (segment, (x, width)) in enumerate(zip(self._segments, self._places(), strict=True)):
            colour = QColor(worn.soft(self._side, STRENGTHS[min(index, len(STRENGTHS) - 1)]))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour)
            painter.drawRoundedRect(QRectF(x, 0, width - 2, BAR), 3, 3)
            if segment.running:
                painter.setBrush(_hatched(QColor(worn.surface)))
                painter.drawRoundedRect(QRectF(x, 0, width - 2, BAR), 3, 3)
            room = QRectF(x, BAR + 4, width - 6, 16)
            painter.setFont(small)
            painter.setPen(QColor(worn.muted))
            name = QFontMetrics(small).elidedText(str(segment.name), Qt.TextElideMode.ElideRight, int(room.width()))
            painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, name)
            painter.setFont(self.font())
            painter.setPen(QColor(worn.text))
            spent = say("{seconds} s", seconds=figures.seconds(segment.seconds))
            painter.drawText(room.translated(0, 17), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, spent)

    def _places(self) -> list[tuple[float, float]]:
        """(x, width) of each segment: in proportion, but none too narrow for its words."""
        whole = float(self.width())
        least = min(NARROWEST, whole / len(self._segments))
        spare = whole - least * len(self._segments)
        total = sum(segment.seconds for segment in self._segments) or 1.0
        places, x = [], 0.0
        for segment in self._segments:
            width = least + spare * segment.seconds / total
            places.append((x, width))
            x += width
        return places


def _hatched(colour: QColor) -> QBrush:
    colour.setAlpha(150)
    return QBrush(colour, Qt.BrushStyle.BDiagPattern)
