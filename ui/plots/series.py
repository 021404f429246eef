"""Live figures as lines over time and as one point a request; blue and solid the original, amber the quantized."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont

from ui import language, theme
from ui.plots.looks import MARKS, SIDES, colour, dash, is_filled
from workbench import figures
from workbench.measure import series
from workbench.words import Sentence, say

CROWDED = 60  # more requests than this are smaller points
TICKS_S = {120: (90, 60, 30), 900: (600, 300), 3600: (2700, 1800, 900)}

Points = Iterable[tuple[float, float | None]]


class LivePlot(pg.PlotWidget):
    """A small plot without menus or mouse: curves are made once, only their data changes."""

    def __init__(self, name: Sentence | str, words: Callable[[float], str] = "{:g}".format):
        super().__init__()
        self._words = words
        self._top = 0.0
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setMouseEnabled(x=False, y=False)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFixedHeight(96)
        self.setFrameShape(self.Shape.NoFrame)
        # A wheel over the plot scrolls the panel, not the plot.
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        item = self.getPlotItem()
        item.getAxis("left").setWidth(40)
        item.getAxis("bottom").setHeight(18)
        item.getViewBox().setDefaultPadding(0)
        item.setContentsMargins(0, 2, 6, 0)
        language.show(self.setAccessibleName, name)
        theme.changed.connect(self.paint)

    def set_top(self, highest: float | None, least: float = 0.0) -> None:
        """Scale upwards from 0 to a round number above `highest`, and to `least` at the least."""
        top = max(least, _round_up(highest or 0)) or 1.0
        if top != self._top:
            self._top = top
            self.getPlotItem().setYRange(0, top * 1.06, padding=0)
            marks = [(value, self._words(value)) for value in (0, top / 2, top)]
            self.getPlotItem().getAxis("left").setTicks([marks])

    def paint(self) -> None:
        """Take the theme's colours."""
        worn = theme.tokens()
        self.setBackground(worn.surface)
        font = QFont(self.font())
        font.setPixelSize(11)
        for side in ("left", "bottom"):
            axis = self.getPlotItem().getAxis(side)
            axis.setPen(worn.line)
            axis.setTextPen(worn.muted)
            axis.setStyle(tickFont=font, tickLength=0, tickTextOffset=4)


class TimePlot(LivePlot):
    """A line a key over the last `span_s` seconds; a missing value is a gap, a value between two a dot."""

    def __init__(self, name: Sentence | str, words: Callable[[float], str] = "{:g}".format, least: float = 0.0):
        super().__init__(name, words)
        self._least = least
        self._span_s = 0.0
        self.curves: dict[str, pg.PlotDataItem] = {}
        self.dots: dict[str, pg.ScatterPlotItem] = {}
        for side in SIDES:
            self._add(side)
        self.paint()
        self.show_lines({}, 120.0)

    def show_lines(self, lines: Mapping[str, Points], span_s: float, now_s: float | None = None) -> None:
        """Draw points (at_s, value) of each key, seen from `now_s`, by default the newest of all."""
        for key in lines:
            if key not in self.curves:
                self._add(key)
        drawn = {key: series.line(points, buckets=max(100, self.width())) for key, points in lines.items()}
        ends = [float(x[-1]) for x, _ in drawn.values() if x.size]
        now_s = max(ends, default=0.0) if now_s is None else now_s
        highest = None
        for key, curve in self.curves.items():
            x, y = drawn.get(key, (np.zeros(0), np.zeros(0)))
            inside = x >= now_s - span_s
            x, y = x[inside] - now_s, y[inside]
            curve.setData(x, y)
            alone = series.alone(y)
            self.dots[key].setData(x[alone], y[alone])
            if np.isfinite(y).any():
                highest = max(highest or 0.0, float(np.nanmax(y)))
        self.set_top(highest, self._least)
        if span_s != self._span_s:
            self._span_s = span_s
            self.getPlotItem().setXRange(-span_s, 0, padding=0)
        self._mark_time()

    def paint(self) -> None:
        super().paint()
        for key in self.curves:
            self._dress(key)

    def _add(self, key: str) -> None:
        self.curves[key] = self.getPlotItem().plot(connect="finite", antialias=True)
        self.curves[key].curve.setSegmentedLineMode("off")  # drawn by segments, each would begin its dashes anew
        self.dots[key] = pg.ScatterPlotItem(pxMode=True, size=4, antialias=True)
        self.getPlotItem().addItem(self.dots[key])
        self._dress(key)

    def _dress(self, key: str) -> None:
        self.curves[key].setPen(pg.mkPen(colour(key), width=1.6, style=dash(key)))
        self.dots[key].setPen(pg.mkPen(None))
        self.dots[key].setBrush(colour(key))

    def _mark_time(self) -> None:
        marks = [(-at_s, _ago(at_s)) for at_s in TICKS_S.get(round(self._span_s), (self._span_s / 2,))]
        self.getPlotItem().getAxis("bottom").setTicks([marks])


class RequestPlot(LivePlot):
    """Each request a point in its order, above a bar for the part of it that was waiting, where that is known.

    The median of a side is a line, its 95th percentile dotted.
    """

    def __init__(self, name: Sentence | str, words: Callable[[float], str] = "{:g}".format):
        super().__init__(name, words)
        item = self.getPlotItem()
        self.waits = {side: item.plot(connect="pairs", antialias=True) for side in SIDES}
        self.points = {side: pg.ScatterPlotItem(pxMode=True, size=7, antialias=True) for side in SIDES}
        self.medians = {side: item.plot(antialias=True) for side in SIDES}
        self.p95s = {side: item.plot(antialias=True) for side in SIDES}
        for scatter in self.points.values():
            item.addItem(scatter)
        self.paint()
        self.show_requests([])

    def show_requests(self, requests: Sequence[tuple[str, float | None]], waited: Sequence[float | None] = ()) -> None:
        """Draw (side, value) in the order of the requests; one without a value leaves its place empty."""
        count = len(requests)
        known = [value for _, value in requests if value is not None]
        for side in SIDES:
            places = [(place, value) for place, (of, value) in enumerate(requests, 1) if of == side]
            places = [(place, value) for place, value in places if value is not None]
            self.points[side].setData([place for place, _ in places], [value for _, value in places])
            self.points[side].setSize(7 if count <= CROWDED else 4)
            self.waits[side].setPen(
                pg.mkPen(QColor(theme.tokens().soft(side, 0.45)), width=3 if count <= CROWDED else 1)
            )
            self._show_waits(side, [(place, waited[place - 1]) for place, _ in places] if waited else [])
            values = [value for _, value in places]
            for curve, level in ((self.medians, series.median(values)), (self.p95s, series.percentile(values, 95))):
                curve[side].setData([], []) if level is None else curve[side].setData([0.5, count + 0.5], [level] * 2)
        self.set_top(max(known, default=None))
        self.getPlotItem().setXRange(0.5, max(count, 4) + 0.5, padding=0)
        step = max(1, round(_round_up(max(count, 4) / 6)))
        marks = [(place, str(place)) for place in range(step, max(count, 4) + 1, step)]
        self.getPlotItem().getAxis("bottom").setTicks([marks])

    def _show_waits(self, side: str, waits: Sequence[tuple[int, float | None]]) -> None:
        ends = [(place, y) for place, value in waits if value for y in (0.0, value)]
        self.waits[side].setData([place for place, _ in ends], [y for _, y in ends])

    def paint(self) -> None:
        super().paint()
        for side in SIDES:
            self.medians[side].setPen(pg.mkPen(colour(side), width=1.4, style=dash(side)))
            self.p95s[side].setPen(pg.mkPen(colour(side), width=1.2, style=Qt.PenStyle.DotLine))
            self.points[side].setSymbol(MARKS[side])
            self.points[side].setPen(pg.mkPen(colour(side), width=1.2))
            self.points[side].setBrush(colour(side) if is_filled(side) else QColor(theme.tokens().surface))


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 10 … above `value`, so that half of it is a short number too."""
    if value <= 0 or not math.isfinite(value):
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 4, 5, 10) if step * power >= value * 0.999), 10 * power)


def _ago(span_s: float) -> str:
    if span_s >= 120:
        return say("−{count} min", count=figures.number(span_s / 60, 2))
    return say("−{count} s", count=figures.number(span_s, 2))
