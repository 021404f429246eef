"""One part of the Live panel: a fold with a line a side, and plots of both sides."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from PySide6.QtWidgets import QWidget

from ui.widgets import Fold
from ui.widgets.side_line import SideLine
from workbench.engine.monitor import DeviceSample
from workbench.events import ReplyDone
from workbench.measure.bandwidth import Reading
from workbench.measure.requests import Point, points
from workbench.runs import EngineRun
from workbench.words import Sentence


@dataclass(slots=True)
class Shown:
    """What the panel shows. `runs` are by key (ui/plots/looks.py), `whole` by side: a separated side's legs as one.

    `readings` say by side what a step reads, `devices` are this machine's readings, oldest first.
    """

    runs: dict[str, EngineRun] = field(default_factory=dict)
    whole: dict[str, EngineRun] = field(default_factory=dict)
    replies: Sequence[tuple[str, ReplyDone]] = ()
    devices: Sequence[DeviceSample] = ()
    readings: dict[str, Reading] = field(default_factory=dict)
    span_s: float = 120.0

    @property
    def now_s(self) -> float | None:
        """The newest sample of all: the right end of plots that must agree in time."""
        return max((run.series.at_s[-1] for run in self.runs.values() if run.series.at_s), default=None)

    def over_time(self, name: str, runs: dict[str, EngineRun] | None = None) -> dict[str, list]:
        """Points (at_s, value) of the series `name` by key, of the time shown."""
        told = self.runs if runs is None else runs
        return {
            key: recent(run.series.at_s, reversed(getattr(run.series, name)), self.span_s) for key, run in told.items()
        }

    def requests(self) -> list[Point]:
        """The last requests of both sides."""
        return points({side: run.requests for side, run in self.whole.items()}, self.replies)


class Section(Fold):
    """`draw(shown)` fills it. Above its `widgets` stands a line a side, or one a leg where a side is separated.

    `first` are widgets that come even before these lines.
    """

    def __init__(self, title: Sentence, *widgets: QWidget, first: tuple[QWidget, ...] = ()):
        super().__init__("{title}", title=title)
        self.title = title
        self.lines: dict[str, SideLine] = {}
        self.body.setContentsMargins(6, 0, 0, 8)
        self.body.setSpacing(4)
        self._above = len(first)
        for widget in (*first, *widgets):
            self.body.addWidget(widget)

    def draw(self, shown: Shown) -> None:
        """Draw everything of this part."""
        raise NotImplementedError

    def draw_quick(self, shown: Shown) -> None:
        """Draw what comes ten times a second."""

    def show_lines(self, keys: Iterable[str]) -> None:
        """Show the lines of these keys only."""
        wanted = list(keys)
        for key in wanted:
            if key not in self.lines:
                self.lines[key] = SideLine(key)
                self.body.insertWidget(self._above + len(self.lines) - 1, self.lines[key])
        for key, line in self.lines.items():
            line.setVisible(key in wanted)


def recent(at_s: deque[float], newest: Iterable, span_s: float) -> list[tuple[float, object]]:
    """The pairs of the last `span_s` seconds, oldest first; `newest` are the values, newest first.

    So a series of an hour is not walked for two minutes of it.
    """
    since = at_s[-1] - span_s if at_s else 0.0
    pairs = list(takewhile(lambda pair: pair[0] >= since, zip(reversed(at_s), newest, strict=False)))
    pairs.reverse()
    return pairs
