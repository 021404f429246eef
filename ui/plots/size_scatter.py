"""Harm against size: a point for each result, a line through those that nothing beats in both."""

import math
from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QFont

from ui import language, theme
from workbench import figures
from workbench.scatter import Point, decades, frontier
from workbench.words import say

ROOM = 0.35  # of the width, at the right, for names


class KlAxis(pg.AxisItem):
    """Decadic logarithms read as what they are of."""

    def tickValues(self, minimum: float, maximum: float, size: float) -> list[tuple[float, list[float]]]:
        marks = [math.log10(value) for value in decades(minimum, maximum)]
        if maximum - minimum > 2:  # powers of ten alone have the room
            marks = [mark for mark in marks if mark == round(mark)]
        return [(1.0, marks)]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [figures.number(10**value, 2) for value in values]


class SizeScatter(pg.PlotWidget):
    """`show_points` takes sizes in MB and KL in nats per token. Circles are results, crosses failed a check."""

    def __init__(self):
        super().__init__(axisItems={"left": KlAxis("left")})
        self.points: tuple[Point, ...] = ()
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setMouseEnabled(x=False, y=False)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFrameShape(self.Shape.NoFrame)
        self.setMinimumHeight(180)
        item = self.getPlotItem()
        item.getAxis("left").setWidth(64)
        item.getAxis("bottom").enableAutoSIPrefix(False)
        self.best = item.plot()
        self.marks = pg.ScatterPlotItem(size=10)
        item.addItem(self.marks)
        self._names: list[pg.TextItem] = []
        language.changed.connect(self._speak)
        theme.changed.connect(self._paint)
        self._paint()
        self._speak()

    def show_points(self, points: Sequence[Point]) -> None:
        if tuple(points) == self.points:
            return
        self.points = tuple(points)
        best = frontier(self.points)
        self.best.setData([point.x for point in best], [math.log10(point.y) for point in best])
        if self.points:
            xs, ys = [point.x for point in self.points], [math.log10(point.y) for point in self.points]
            span = max(max(xs) - min(xs), 0.05 * max(xs))
            self.setXRange(min(xs) - 0.1 * span, max(xs) + ROOM * span, padding=0)
            rise = max(max(ys) - min(ys), 0.3)
            self.setYRange(min(ys) - 0.15 * rise, max(ys) + 0.15 * rise, padding=0)
        self._paint()
        self._speak()

    def _paint(self) -> None:
        worn, item = theme.tokens(), self.getPlotItem()
        font = QFont(self.font())
        font.setPixelSize(11)
        self.setBackground(worn.surface)
        for side in ("left", "bottom"):
            axis = item.getAxis(side)
            axis.setPen(worn.line)
            axis.setTextPen(worn.muted)
            axis.setStyle(tickFont=font, tickLength=-4)
            axis.label.setFont(font)
        self.best.setPen(pg.mkPen(worn.quantized, width=1.2, style=Qt.PenStyle.DashLine))
        self.marks.setData(
            [
                {
                    "pos": (point.x, math.log10(point.y)),
                    "symbol": "x" if point.crossed else "o",
                    "brush": worn.rejected if point.crossed else worn.quantized,
                    "pen": pg.mkPen(None),
                }
                for point in self.points
            ]
        )
        for name in self._names:
            item.removeItem(name)
        self._names = [pg.TextItem(point.name, color=worn.text, anchor=(-0.05, 0.95)) for point in self.points]
        for name, point in zip(self._names, self.points, strict=True):
            name.setFont(font)
            name.setPos(point.x, math.log10(point.y))
            item.addItem(name)

    def _speak(self) -> None:
        item = self.getPlotItem()
        item.getAxis("left").setLabel(say("KL (nats per token)"))
        item.getAxis("bottom").setLabel(say("Size (MB)"))
        self.setAccessibleName(say("KL against size"))
        told = (
            say("{name}: {size} MB, KL {kl}", name=point.name, size=figures.number(point.x), kl=figures.number(point.y))
            for point in self.points
        )
        self.setAccessibleDescription("; ".join(told))
