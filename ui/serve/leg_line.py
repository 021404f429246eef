"""One engine of prefill and decode apart: its light, its start, what it does now and did lately."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from ui import language, theme
from ui.serve.leg_fields import title
from ui.widgets.elided import Elided
from ui.widgets.label import label
from ui.widgets.sparkline import Sparkline
from ui.widgets.start_view import StartView
from ui.widgets.state_light import StateLight
from workbench import figures
from workbench.engine.separation import Leg, role_of
from workbench.runs import EngineRun
from workbench.words import Sentence

RATES = {"prefill": "prompt_per_s", "decode": "tokens_per_s"}


class LegLine(QWidget):
    """`name` as in `Separation.legs`, of the engines of one side."""

    def __init__(self, side: str, name: str):
        super().__init__()
        self.role = role_of(name)
        self.title = label(role="section")
        language.show(self.title.setText, title(name))
        self.where = Elided("caption")
        self.light = StateLight()
        self.start = StartView(side)
        self.now = label(role="caption")
        self.curve = Sparkline(self.role)
        language.bind(self.curve.setAccessibleName, "Tokens per second over time")
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(_Swatch(self.role))
        head.addWidget(self.title)
        head.addWidget(self.where, 1)
        head.addWidget(self.light)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addLayout(head)
        column.addWidget(self.start)
        column.addWidget(self.curve)
        column.addWidget(self.now)

    def show_leg(self, leg: Leg, run: EngineRun, state: str, now_s: float, silent_s: float) -> None:
        """Draw what the engine is; `state` is one of its own lights."""
        self.where.show_text(str(_where(leg)))
        self.light.show_state(state)
        self.start.show_start(run, state, now_s, silent_s)
        series = run.series
        seen = state == "ready" and bool(series.at_s)
        for part in (self.curve, self.now):
            part.setVisible(seen)
        if seen:
            self.curve.show_points(zip(series.at_s, getattr(series, RATES[self.role]), strict=True))
            language.show(self.now.setText, self._now(run))
            self.curve.setAccessibleDescription(self.now.text())

    def _now(self, run: EngineRun) -> Sentence:
        sample, rate = run.sample, getattr(run.rates, RATES[self.role])
        values = {
            "rate": "0" if rate == 0 else figures.number(rate),  # nothing at all is no measurement of 0.00
            "running": figures.count(sample and sample.running),
            "waiting": figures.count(sample and sample.waiting),
            "usage": figures.percent(sample and sample.kv_usage),
        }
        if self.role == "prefill":
            return Sentence(
                "{rate} prompt tok/s · {running} running · {waiting} waiting · KV cache {usage} in use", values
            )
        return Sentence("{rate} tok/s · {running} running · {waiting} waiting · KV cache {usage} in use", values)


def _where(leg: Leg) -> Sentence | str:
    """Its address, or its devices and how it is split over them."""
    if leg.url:
        return leg.url
    parts = {}
    if leg.devices:
        parts["gpus"] = Sentence("GPU {numbers}", {"numbers": ", ".join(map(str, leg.devices))})
    if leg.profile.tensor_parallel > 1:
        parts["tensor"] = Sentence("tensor {count}", {"count": leg.profile.tensor_parallel})
    if leg.profile.pipeline_parallel > 1:
        parts["pipeline"] = Sentence("pipeline {count}", {"count": leg.profile.pipeline_parallel})
    return Sentence(" · ".join("{" + name + "}" for name in parts), parts) if parts else ""


class _Swatch(QWidget):
    """The role's colour, as in the plots of the phases."""

    def __init__(self, role: str):
        super().__init__()
        self._role = role
        self.setFixedSize(QSize(10, 16))
        theme.changed.connect(self.update)

    def paintEvent(self, event) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(getattr(theme.tokens(), self._role)))
        painter.drawRoundedRect(QRectF(0, 3, 10, 10), 2, 2)
