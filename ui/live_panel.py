"""The live figures of both engines, at the right of Serve and Chat."""

from collections import deque

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from ui import language, theme
from ui.engines import SIDES, Engines
from ui.frames import Frames
from ui.plots.kv_pages import Share, ShareBars
from ui.plots.positions import PositionBars
from ui.plots.series import RequestPlot, TimePlot
from ui.widgets import Fold, label
from ui.widgets.side_line import SideLine
from workbench import figures
from workbench.events import ReplyDone
from workbench.measure import series
from workbench.runs import EngineRun
from workbench.words import Sentence, say

SPANS_S = (120, 900, 3600)
REQUESTS = 500
WIDTH = 332


class LivePanel(QFrame):
    """Folds of figures, each with one line a side and a plot of both; drawn per frame and only while seen."""

    def __init__(self, engines: Engines):
        super().__init__()
        self.setObjectName("dock")
        self.setFixedWidth(WIDTH)
        self._engines = engines
        self._replies: deque[tuple[str, ReplyDone]] = deque(maxlen=REQUESTS)
        self._frames = Frames(self)
        self.span = QComboBox()
        language.bind(self.span.setAccessibleName, "Time shown")
        for span_s in SPANS_S:
            self.span.addItem("", span_s)
        self.span.currentIndexChanged.connect(self.touch)
        self.empty = label(role="muted", wrap=True)
        self._lines: dict[str, dict[str, SideLine]] = {}
        self._folds: list[Fold] = []
        self._build()
        for signal in (engines.changed, engines.sampled):
            signal.connect(self.touch)
        for signal in (language.changed, theme.changed):
            signal.connect(self.touch)
        language.changed.connect(self._name_spans)
        self._name_spans()
        self.redraw()

    def add_reply(self, side: str, reply: ReplyDone) -> None:
        """One request of the chat has ended: it becomes a point."""
        assert side in SIDES, side
        self._replies.append((side, reply))
        self.touch()

    def touch(self, *_changed) -> None:
        """Something changed: redraw within a frame, or when the panel is seen again."""
        self._frames.touch()

    def redraw(self) -> None:
        """Draw everything from the engines' runs and the replies."""
        shown = [side for side in SIDES if self._has_figures(side)]
        asked = [side for side in SIDES if any(of == side for of, _ in self._replies)]
        self.empty.setVisible(not shown and not asked)
        if any(self._engines.is_running(side) for side in SIDES):
            language.bind(self.empty.setText, "The engine is loading: its figures appear when it is ready.")
        else:
            language.bind(self.empty.setText, "Start an engine: its figures appear here while it works.")
        for fold in self._folds:
            fold.setVisible(bool(shown or asked))
        for lines in self._lines.values():
            for side, line in lines.items():
                line.setVisible(side in shown or side in asked)
        runs = {side: self._engines.run(side) for side in shown}
        self._draw_acceptance(runs)
        self._draw_cache(runs)
        self._draw_requests()
        self._draw_speed(runs)

    # -- parts

    def _build(self) -> None:
        percent = figures.percent
        self.acceptance = TimePlot("Acceptance rate over time", percent, least=1.0)
        self.positions = PositionBars()
        self.positions_caption = label("accepted by draft position, since the start", "caption")
        self.usage = TimePlot("KV cache in use over time", percent, least=0.1)
        self.pages = ShareBars()
        self.pages_caption = label("blocks in use (usage only, not which block holds what)", "caption", wrap=True)
        self.ttft = RequestPlot("Time to first token of each request")
        self.between = RequestPlot("Time between tokens of each request")
        self.speed = TimePlot("Tokens per second over time")
        self.phases = ShareBars()
        self.phases_caption = label(role="caption")
        self.phases_caption.setTextFormat(Qt.TextFormat.RichText)
        inside = QWidget()
        inside.setObjectName("ground")
        column = QVBoxLayout(inside)
        column.setContentsMargins(16, 0, 12, 12)
        column.setSpacing(8)
        column.addWidget(self.empty)
        parts = (
            ("Acceptance", "acceptance", (self.acceptance, self.positions, self.positions_caption)),
            ("KV cache", "cache", (self.usage, self.pages, self.pages_caption)),
            ("Time to first token", "ttft", (self.ttft,)),
            ("Between tokens", "between", (self.between,)),
            ("Speed", "speed", (self.speed, self.phases, self.phases_caption)),
        )
        for title, name, widgets in parts:
            fold = Fold("{title}", title=Sentence(title))
            fold.body.setContentsMargins(6, 0, 0, 8)
            fold.body.setSpacing(4)
            self._lines[name] = {side: SideLine(side) for side in SIDES}
            for widget in (*self._lines[name].values(), *widgets):
                fold.body.addWidget(widget)
            self._folds.append(fold)
            column.addWidget(fold)
        column.addStretch(1)
        head = QHBoxLayout()
        head.setContentsMargins(16, 12, 12, 0)
        head.addWidget(label("Live", "section"), 1)
        head.addWidget(self.span)
        scroll = QScrollArea(widgetResizable=True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(inside)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addLayout(head)
        whole.addWidget(scroll, 1)

    def _draw_acceptance(self, runs: dict[str, EngineRun]) -> None:
        for side, run in runs.items():
            line = self._lines["acceptance"][side]
            if run.speculates is False:
                line.show_value(Sentence("off"), "", Sentence("no speculation"))
                continue
            total = run.sample and series.share(run.sample.accepted_tokens, run.sample.draft_tokens)
            rest = Sentence(
                "{length} {length:token|tokens} a step · {total} since the start",
                {"length": figures.number(run.rates.mean_accepted, 2), "total": figures.percent(total)},
            )
            line.show_value(figures.percent(run.rates.acceptance), "", rest)
        drafting = {side: run for side, run in runs.items() if run.speculates}
        self._over_time(self.acceptance, drafting, "acceptance")
        shares = {side: series.by_position(run.sample) for side, run in drafting.items()}
        self.positions.show_shares(shares)
        for widget in (self.positions, self.positions_caption):
            widget.setVisible(any(shares.values()))
        self.acceptance.setVisible(bool(drafting))

    def _draw_cache(self, runs: dict[str, EngineRun]) -> None:
        bars = []
        for side, run in runs.items():
            blocks = series.blocks_used(run.sample)
            size = run.sample.kv_block_size if run.sample else None
            rest: Sentence | str = ""
            if blocks:
                values = {
                    "used": figures.count(blocks[0]),
                    "all": figures.count(blocks[1]),
                    "size": size or figures.DASH,
                }
                rest = Sentence("{used} of {all} blocks of {size} tokens", values)
                bars.append(Share(side, (("kv", series.share(*blocks) or 0.0),)))
            line = self._lines["cache"][side]
            line.show_value(figures.percent(run.sample.kv_usage if run.sample else None, 1), "", rest)
        self._over_time(self.usage, runs, "kv_usage")
        self.pages.show_shares(tuple(bars))
        for widget in (self.pages, self.pages_caption):
            widget.setVisible(bool(bars))

    def _draw_requests(self) -> None:
        first = [(side, reply.ttft_s) for side, reply in self._replies]
        between = [(side, _milliseconds(series.between_tokens_s(reply))) for side, reply in self._replies]
        for name, plot, values, unit in (("ttft", self.ttft, first, "s"), ("between", self.between, between, "ms")):
            for side, line in self._lines[name].items():
                own = [value for of, value in values if of == side and value is not None]
                p95 = figures.number(series.percentile(own, 95))
                rest = Sentence(
                    "median · p95 {p95} {unit} · {count} {count:request|requests}",
                    {"p95": p95, "unit": unit, "count": len(own)},
                )
                line.show_value(figures.number(series.median(own)), unit if own else "", rest if own else "")
            plot.show_requests(values)

    def _draw_speed(self, runs: dict[str, EngineRun]) -> None:
        bars = []
        for side, run in runs.items():
            decode, prefill = run.rates.tokens_per_s, run.rates.prompt_per_s
            rest = Sentence("prefill {prefill} tok/s", {"prefill": _rate(prefill)})
            self._lines["speed"][side].show_value(_rate(decode), say("tok/s"), rest)
            whole = (decode or 0) + (prefill or 0)
            parts = (("prefill", series.share(prefill, whole) or 0.0), ("decode", series.share(decode, whole) or 0.0))
            bars.append(Share(side, parts))
        self._over_time(self.speed, runs, "tokens_per_s")
        self.phases.show_shares(tuple(bars))
        for widget in (self.phases, self.phases_caption):
            widget.setVisible(bool(bars))
        worn = theme.tokens()
        names = ((worn.prefill, say("prefill")), (worn.decode, say("decode")))
        marks = " &nbsp; ".join(f'<span style="color:{colour}">■</span> {name}' for colour, name in names)
        self.phases_caption.setText(marks)

    # -- inside

    def _has_figures(self, side: str) -> bool:
        return self._engines.state(side) == "ready" or bool(self._engines.run(side).series.at_s)

    def _over_time(self, plot: TimePlot, runs: dict[str, EngineRun], name: str) -> None:
        lines = {side: zip(run.series.at_s, getattr(run.series, name), strict=True) for side, run in runs.items()}
        plot.show_lines(lines, float(self.span.currentData()))

    def _name_spans(self) -> None:
        for index, span_s in enumerate(SPANS_S):
            self.span.setItemText(index, say("last {minutes} min", minutes=span_s // 60))


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _rate(per_s: float | None) -> str:
    """Nothing at all is no measurement of "0.00"."""
    return "0" if per_s == 0 else figures.number(per_s)
