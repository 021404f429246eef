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
ESTIMATE = Sentence("Estimate")
MEASURED = Sentence("Measured")


@dataclass(frozen=True)
class Part:
    """One row: its name, its estimated bytes, the engine's own figure once known, and the token of its colour."""

    name: Sentence
    estimate: int | None
    measured: int | None = None
    colour: str = "muted"


class Waterfall(QWidget):
    """Parts of `total` bytes; what goes beyond the total is drawn in the colour of rejection.

    Once one part is measured each shows both figures, under headings: what was estimated and what was measured.
    """

    def __init__(self):
        super().__init__()
        self._parts: tuple[Part, ...] = ()
        self._total = 0
        self._estimate = ESTIMATE
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        language.changed.connect(self._tell)

    def show_parts(self, parts: Sequence[Part], total: int, estimate: Sentence = ESTIMATE) -> None:
        """`estimate` heads the estimates where measured figures stand beside them."""
        if (tuple(parts), total, estimate) == (self._parts, self._total, self._estimate):
            return
        height = self.sizeHint().height()
        self._parts, self._total, self._estimate = tuple(parts), total, estimate
        if self.sizeHint().height() != height:
            self.updateGeometry()
        self._tell()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    @property
    def is_measured(self) -> bool:
        """Whether both figures are shown."""
        return any(part.measured is not None for part in self._parts)

    def sizeHint(self) -> QSize:
        return QSize(420, max(1, len(self._parts) + self.is_measured) * ROW)

    def minimumSizeHint(self) -> QSize:
        return QSize(240, self.sizeHint().height())

    def _tell(self) -> None:
        self.setAccessibleDescription(", ".join(map(self._told, self._parts)))
        self.update()

    def _told(self, part: Part) -> str:
        told = f"{part.name} {figures.bytes_of(part.estimate)}"
        return f"{told}, {MEASURED} {figures.bytes_of(part.measured)}" if self.is_measured else told

    def paintEvent(self, event) -> None:
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left, right = self._margins()
        width = max(40, self.width() - left - right)
        used = sum(_known(part) or 0 for part in self._parts)
        scale = width / max(self._total, used, 1)
        first = int(self.is_measured)
        begin = 0.0
        for index, part in enumerate(self._parts, start=first):
            top = index * ROW
            painter.setPen(QColor(worn.muted))
            side = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
            painter.drawText(QRectF(0, top, left, ROW), side, str(part.name))
            painter.fillRect(QRectF(left, top + ROW / 2 - 0.5, width, 1), QColor(worn.line))
            size = _known(part)
            if size is None:
                continue
            painter.setClipRect(QRectF(left, top, width, ROW))  # an estimate may reach beyond what was measured
            self._bar(painter, part, left + begin * scale, scale, top + (ROW - BAR) / 2)
            painter.setClipping(False)
            begin += size
        self._sizes(painter)
        if self._total and used > self._total:
            self._limit(painter, left + self._total * scale, first * ROW)

    def _columns(self) -> list[tuple[str, list[str]]]:
        """Heading and figures of each column of sizes; one without a heading until something is measured."""
        estimates = [figures.bytes_of(part.estimate) for part in self._parts]
        if not self.is_measured:
            return [("", estimates)]
        return [
            (str(self._estimate), estimates),
            (str(MEASURED), [figures.bytes_of(each.measured) for each in self._parts]),
        ]

    def _widths(self) -> list[int]:
        metrics = QFontMetrics(self.font())
        return [max(map(metrics.horizontalAdvance, [head, *sizes])) for head, sizes in self._columns() if sizes]

    def _margins(self) -> tuple[int, int]:
        """What names and sizes take at the left and the right of the bars."""
        metrics = QFontMetrics(self.font())
        left = max((metrics.horizontalAdvance(str(part.name)) for part in self._parts), default=0) + APART
        return left, sum(width + APART for width in self._widths())

    def _sizes(self, painter: QPainter) -> None:
        worn = theme.tokens()
        side = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        end = self.width()
        columns = list(zip(self._columns(), self._widths(), strict=False))
        for (head, sizes), width in reversed(columns):
            final = end == self.width()
            rows = [head, *sizes] if self.is_measured else sizes
            for index, text in enumerate(rows):
                heading = self.is_measured and index == 0
                painter.setPen(QColor(worn.text if final and not heading else worn.muted))
                painter.drawText(QRectF(end - width, index * ROW, width, ROW), side, text)
            end -= width + APART

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

    def _limit(self, painter: QPainter, x: float, top: int) -> None:
        painter.setPen(QPen(QColor(theme.tokens().rejected), 1.5, Qt.PenStyle.DashLine))
        painter.drawLine(int(x), top, int(x), self.height())


def _known(part: Part) -> int | None:
    return part.estimate if part.measured is None else part.measured
