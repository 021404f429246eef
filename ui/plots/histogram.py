"""The weights of one layer: the original filled in blue, the quantized as an amber line, the grid as ticks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from ui import language, theme
from ui.widgets.label import label
from workbench import figures
from workbench.words import say

LABEL_HEIGHT = 200  # a lower plot needs the line for the picture
TITLE_HEIGHT = 150  # room for the words along the left axis
AXIS_WIDTH = 72  # "100,000" and the title beside it


@dataclass(frozen=True, slots=True)
class Counts:
    """What the plot shows: counts over equal bins between `low` and `high`, and what they leave out."""

    low: float
    high: float
    before: Sequence[int]
    after: Sequence[int] = ()
    levels: Sequence[float] = ()
    not_finite: int = 0

    @property
    def total(self) -> int:
        return sum(self.before)

    @property
    def single(self) -> float | None:
        """The value near which all values lie, when they share one bin."""
        filled = [index for index, count in enumerate(self.before) if count]
        if len(filled) == 1 or (filled and not self.high > self.low):
            return self.low + (self.high - self.low) * (filled[0] + 0.5) / len(self.before)
        return None


class CountAxis(pg.AxisItem):
    """Counts on a scale of log10(1 + n), which has a place for zero."""

    def tickValues(self, minimum: float, maximum: float, size: float) -> list[tuple[float, list[float]]]:
        powers = range(max(1, int(maximum) + 2))
        step = max(1, int(len(powers) * 22 / max(size, 1) + 0.5))  # about 22 px a label
        if maximum > 0 and 0.3 / maximum * size < 14:  # 0 and 1 would lie upon each other
            powers = powers[1:]
        marks = [0.0, *(float(np.log10(1 + 10.0**power)) for power in powers[::step])]
        return [(1.0, [mark for mark in marks if minimum <= mark <= maximum])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [figures.count(round(10.0**value - 1)) for value in values]


class HistogramPlot(QWidget):
    """A plot with its legend in words. Curves are made once; `show_counts` only sets their data."""

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self._shown: Counts | None = None
        self._edges = np.zeros(2)
        self._count_axis = CountAxis("left")
        self.plot = pg.PlotWidget(axisItems={"left": self._count_axis})
        self.plot.setMenuEnabled(False)
        self.plot.hideButtons()
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.plot.setMinimumHeight(84)
        item = self.plot.getPlotItem()
        item.getAxis("bottom").enableAutoSIPrefix(False)
        self._count_axis.setWidth(AXIS_WIDTH)
        self._before = item.plot(stepMode="center", fillLevel=0)
        self._after = item.plot(stepMode="center")
        self._levels = item.plot(connect="pairs")
        self._legend, self._remark = label(role="caption"), label(role="caption")
        self._remark.setAlignment(Qt.AlignmentFlag.AlignRight)
        top = QHBoxLayout()
        top.addWidget(self._legend)
        top.addStretch()
        top.addWidget(self._remark)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(top)
        column.addWidget(self.plot, 1)
        self.plot.scene().sigMouseMoved.connect(self._read_out)
        theme.changed.connect(self._paint)
        language.changed.connect(self._speak)
        self._paint()

    def show_counts(self, counts: Counts | None) -> None:
        """Show these counts; None empties the plot."""
        self._shown = counts
        if counts is None or not counts.total:
            for curve in (self._before, self._after, self._levels):
                curve.setData([], [])
            self._speak()
            return
        before, after = np.asarray(counts.before, float), np.asarray(counts.after, float)
        low, high = counts.low, counts.high
        if not high > low:  # one bar: bins of no width would draw nothing
            half = abs(low) * 0.5 or 0.5
            low, high = low - half, low + half
            before = np.array([0.0, before.sum(), 0.0])
            after = np.array([0.0, after.sum(), 0.0]) if after.size else after
        self._edges = np.linspace(low, high, before.size + 1)
        self._before.setData(self._edges, np.log10(1 + before))
        if after.size:
            self._after.setData(np.linspace(low, high, after.size + 1), np.log10(1 + after))
        else:
            self._after.setData([], [])
        top = float(np.log10(1 + max(before.max(), after.max() if after.size else 0)))
        self._set_levels(counts.levels, top)
        self.plot.setXRange(low, high, padding=0.02)
        self.plot.setYRange((-0.1 if len(counts.levels) else -0.02) * top, top * 1.04, padding=0)
        self._speak()

    @property
    def remark(self) -> str:
        """What the picture alone does not say, such as the count of values that are not finite."""
        return self._remark.text()

    @property
    def legend_text(self) -> str:
        return self._legend.text()

    def curves(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The data now drawn, by curve."""
        named = {"before": self._before, "after": self._after, "levels": self._levels}
        return {name: curve.getOriginalDataset() for name, curve in named.items()}

    # -- inside

    def _set_levels(self, levels: Sequence[float], top: float) -> None:
        """Ticks below the zero line, where they hide no bar."""
        x = np.repeat(np.asarray(levels, float), 2)
        y = np.tile([-0.08 * top, -0.02 * top], len(levels))
        self._levels.setData(x, y)

    def _standing_remark(self) -> str:
        counts = self._shown
        if counts is None:
            return ""
        parts = []
        if not counts.total:
            parts.append(say("no finite value to draw"))
        elif counts.single is not None:
            parts.append(say("all values near {value}", value=f"{counts.single:.3g}"))
        if counts.not_finite:
            parts.append(say("{count} not finite", count=figures.tokens(counts.not_finite)))
        return " · ".join(parts)

    def _speak(self) -> None:
        tokens = theme.tokens()
        marks = [(tokens.original, "■", say("original"))]
        if self._shown and self._shown.after:
            marks.append((tokens.quantized, "━", say("quantized")))
        if self._shown and self._shown.levels:
            marks.append((tokens.quantized, "╷", say("grid levels")))
        self._legend.setText(
            "&nbsp;&nbsp;&nbsp;".join(
                f'<span style="color:{color}">{mark}</span> {word}' for color, mark, word in marks
            )
        )
        self._remark.setText(self._standing_remark())
        item = self.plot.getPlotItem()
        item.getAxis("left").setLabel(say("weights, logarithmic"))
        item.getAxis("bottom").setLabel(say("value"))
        self._fit_labels()  # a label that is set is shown
        self.plot.setAccessibleName(say("Histogram of the weights"))
        self.setAccessibleDescription(f"{self._legend_words()} {self._remark.text()}".strip())

    def _legend_words(self) -> str:
        counts = self._shown
        if counts is None or not counts.total:
            return ""
        return say(
            "{count} {count:value|values} between {low} and {high}",
            count=f"{counts.total:,}",
            low=f"{counts.low:.3g}",
            high=f"{counts.high:.3g}",
        )

    def _paint(self) -> None:
        tokens = theme.tokens()
        font = QFont(self.font())
        font.setPixelSize(11)
        self.plot.setBackground(tokens.surface)
        fill = pg.mkColor(tokens.original)
        fill.setAlpha(120)
        self._before.setPen(pg.mkPen(tokens.original, width=1))
        self._before.setBrush(fill)
        self._after.setPen(pg.mkPen(tokens.quantized, width=1.5))
        self._levels.setPen(pg.mkPen(tokens.quantized, width=1))
        for side in ("left", "bottom"):
            axis = self.plot.getPlotItem().getAxis(side)
            axis.setPen(tokens.line)
            axis.setTextPen(tokens.muted)
            axis.setStyle(tickFont=font, tickLength=-4)
            axis.label.setFont(font)
        self._speak()

    def _read_out(self, place: QPointF) -> None:
        """Under the pointer: the value and both counts."""
        counts, box = self._shown, self.plot.getPlotItem().getViewBox()
        if counts is None or not counts.total or not box.sceneBoundingRect().contains(place):
            self._remark.setText(self._standing_remark())
            return
        value = box.mapSceneToView(place).x()
        index = int(np.searchsorted(self._edges, value, side="right")) - 1
        before = self._before.getOriginalDataset()[1]
        if not 0 <= index < len(before):
            self._remark.setText(self._standing_remark())
            return
        read = [_of_log(before[index])]
        after = self._after.getOriginalDataset()[1]
        if after is not None and index < len(after):
            read.append(_of_log(after[index]))
        self._remark.setText(f"{value:.4g}: " + " → ".join(read))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_labels()

    def _fit_labels(self) -> None:
        self.plot.getPlotItem().getAxis("bottom").showLabel(self.height() > LABEL_HEIGHT)
        self._count_axis.showLabel(self.height() > TITLE_HEIGHT)

    def leaveEvent(self, event: QEvent) -> None:
        self._remark.setText(self._standing_remark())
        super().leaveEvent(event)


def _of_log(height: float) -> str:
    return f"{round(10.0**height - 1):,}"
