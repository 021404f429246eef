"""How long each part of an engine's start took and is expected to take: segments in proportion, their figures below."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import language, theme
from workbench import figures
from workbench.words import Sentence, say

BAR = 8
LINE = 17
NARROWEST = 84
STRENGTHS = (0.38, 0.5, 0.62, 0.75, 0.88, 1.0)


@dataclass(frozen=True)
class Segment:
    """One phase: its seconds so far, None before it began, and those of earlier starts, None where there were none."""

    name: Sentence
    seconds: float | None
    running: bool = False
    expected: float | None = None

    @property
    def length(self) -> float:
        """What it takes of the line: a phase that is over its seconds, another at least those expected."""
        spent = self.seconds or 0.0
        return spent if self.seconds is not None and not self.running else max(spent, self.expected or 0.0)

    @property
    def sentence(self) -> Sentence:
        values = {"name": self.name, "seconds": figures.seconds(self.seconds)}
        if self.expected is None:
            return Sentence("{name}: {seconds} s", values)
        return Sentence("{name}: {seconds} s, usually {usual} s", values | {"usual": figures.seconds(self.expected)})


class StartTimeline(QWidget):
    """One engine's start in its side's colour, later phases stronger; what is still to come is only outlined."""

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
            self.updateGeometry()
            self._tell()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    def sizeHint(self) -> QSize:
        lines = 3 if any(segment.expected is not None for segment in self._segments) else 2
        return QSize(420, BAR + 5 + lines * LINE)

    def minimumSizeHint(self) -> QSize:
        return QSize(256, self.sizeHint().height())

    def _tell(self) -> None:
        told = "\n".join(str(part.sentence) for part in self._segments)
        self.setAccessibleDescription(told)
        self.setToolTip(told)
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
            self._draw_bar(painter, segment, QRectF(x, 0, width - 2, BAR), colour)
            room = QRectF(x, BAR + 4, width - 6, 16)
            spent = say("{seconds} s", seconds=figures.seconds(segment.seconds)) if segment.seconds is not None else ""
            told = ""
            if segment.expected is not None:
                told = say("usually {seconds} s", seconds=figures.seconds(segment.expected))
            muted, text = QColor(worn.muted), QColor(worn.text)
            for words, font, shade in (
                (str(segment.name), small, muted),
                (spent, self.font(), text),
                (told, small, muted),
            ):
                painter.setFont(font)
                painter.setPen(shade)
                words = QFontMetrics(font).elidedText(words, Qt.TextElideMode.ElideRight, int(room.width()))
                painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, words)
                room.translate(0, LINE)

    def _draw_bar(self, painter: QPainter, segment: Segment, room: QRectF, colour: QColor) -> None:
        """Filled as far as it is; a running one hatched, so that it reads as unfinished where nothing is expected."""
        worn = theme.tokens()
        if segment.seconds is None or segment.running:
            painter.setPen(QPen(QColor(worn.line), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(room.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
        if segment.seconds is None:
            return
        done = QRectF(room)
        if segment.length:
            done.setWidth(max(3.0, room.width() * segment.seconds / segment.length))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawRoundedRect(done, 3, 3)
        if segment.running:
            painter.setBrush(_hatched(QColor(worn.surface)))
            painter.drawRoundedRect(done, 3, 3)

    def _places(self) -> list[tuple[float, float]]:
        """(x, width) of each segment: in proportion, but none too narrow for its words."""
        whole = float(self.width())
        least = min(NARROWEST, whole / len(self._segments))
        spare = whole - least * len(self._segments)
        total = sum(segment.length for segment in self._segments) or 1.0
        places, x = [], 0.0
        for segment in self._segments:
            width = least + spare * segment.length / total
            places.append((x, width))
            x += width
        return places


def _hatched(colour: QColor) -> QBrush:
    colour.setAlpha(150)
    return QBrush(colour, Qt.BrushStyle.BDiagPattern)
