"""How long requests waited for their first token, and from one token to the next."""

from ui.live.section import Section, Shown
from ui.plots.looks import SIDES
from ui.plots.series import RequestPlot
from ui.widgets import label
from workbench import figures
from workbench.measure import requests, series
from workbench.measure.requests import Point
from workbench.words import Sentence


class FirstToken(Section):
    """Each request's time to first token with its waiting part, as the engine counts it, else as the chat saw it."""

    def __init__(self):
        self.plot = RequestPlot(Sentence("Time to first token of each request"))
        self.caption = label("bar: the part of it spent waiting for a first step", "caption", wrap=True)
        super().__init__(Sentence("Time to first token"), self.plot, self.caption)

    def draw(self, shown: Shown) -> None:
        points = shown.requests()
        self.show_lines(_asked(points, shown))
        for side, line in self.lines.items():
            own = [point for point in points if point.side == side]
            values = [point.ttft_s for point in own if point.ttft_s is not None]
            queued = series.median(point.queue_s for point in own)
            if not values:
                line.show_value(figures.DASH)
                continue
            told = {
                "p95": figures.number(series.percentile(values, 95)),
                "count": len(values),
                "queue": figures.brief(queued),
            }
            rest = Sentence("median · p95 {p95} s · {count} {count:request|requests}", told)
            if queued is not None:
                rest = Sentence("median · p95 {p95} s · {queue} waiting", told)
            line.show_value(figures.number(series.median(values)), "s", rest)
        waited = [point.queue_s for point in points]
        self.plot.show_requests([(point.side, point.ttft_s) for point in points], waited)
        self.caption.setVisible(any(value is not None for value in waited))


class BetweenTokens(Section):
    """Each request's mean time from one token to the next."""

    def __init__(self):
        self.plot = RequestPlot(Sentence("Time between tokens of each request"))
        super().__init__(Sentence("Between tokens"), self.plot)

    def draw(self, shown: Shown) -> None:
        points = shown.requests()
        self.show_lines(_asked(points, shown))
        values = [(point.side, requests.milliseconds(point.between_s)) for point in points]
        for side, line in self.lines.items():
            own = [value for of, value in values if of == side and value is not None]
            if not own:
                line.show_value(figures.DASH)
                continue
            rest = Sentence(
                "median · p95 {p95} {unit} · {count} {count:request|requests}",
                {"p95": figures.number(series.percentile(own, 95)), "unit": "ms", "count": len(own)},
            )
            line.show_value(figures.number(series.median(own)), "ms", rest)
        self.plot.show_requests(values)


def _asked(points: list[Point], shown: Shown) -> list[str]:
    """The sides that have a line: those with an engine, and those that were asked before."""
    return [side for side in SIDES if side in shown.whole or any(point.side == side for point in points)]
