"""The engines of prefill and decode apart on their card, and the front that users talk to."""

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from ui import language
from ui.engines import Engines
from ui.serve.leg_line import LegLine
from ui.widgets.elided import Elided
from ui.widgets.label import label
from ui.widgets.state_light import StateLight
from workbench.engine import handed
from workbench.engine.separation import Separation
from workbench.runs import EngineRun


class LegsView(QWidget):
    """One line an engine, the front's last; hidden for an engine that does both."""

    def __init__(self, side: str):
        super().__init__()
        self._side = side
        self.lines: dict[str, LegLine] = {}
        self.light = StateLight()
        self.address = Elided("caption")
        self.handed = label(role="muted", wrap=True)
        front = QHBoxLayout()
        front.setSpacing(8)
        front.addWidget(label("Front", "section"))
        front.addWidget(self.address, 1)
        front.addWidget(self.light)
        self._column = QVBoxLayout()
        self._column.setSpacing(14)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(14)
        whole.addLayout(self._column)
        rule = QFrame()
        rule.setObjectName("rule")
        whole.addWidget(rule)
        whole.addLayout(front)
        whole.addWidget(self.handed)
        self.hide()

    def show_engines(self, separation: Separation | None, engines: Engines, now_s: float) -> None:
        """Draw the engines of `separation` as they are now."""
        self.setVisible(separation is not None)
        if separation is None:
            return
        state, run = engines.state(self._side), engines.run(self._side)
        legs = separation.legs()
        self._keep_lines(list(legs))
        states = {name: _state(state, run.legs.get(name)) for name in legs}
        for name, leg in legs.items():
            own = run.legs.get(name) or EngineRun()
            self.lines[name].show_leg(leg, own, states[name], now_s, engines.silent_s(self._side))
        loading = state == "starting" and any(each != "ready" for each in states.values())
        ended = state == "failed" and "failed" in states.values()
        self.light.show_state("ahead" if loading else "stopped" if ended else state)
        self.address.show_text(run.ready.url if run.ready and state == "ready" else "vllm-router")
        told = handed.told(run) if state == "ready" else None
        self.handed.setVisible(told is not None)
        language.show(self.handed.setText, told or "")

    def _keep_lines(self, names: list[str]) -> None:
        if names == list(self.lines):
            return
        for line in self.lines.values():
            line.hide()
            line.deleteLater()
        self.lines = {name: LegLine(self._side, name) for name in names}
        for line in self.lines.values():
            self._column.addWidget(line)


def _state(whole: str, leg: EngineRun | None) -> str:
    """A leg's own light, where all of them are `whole`."""
    if leg is not None and leg.state == "failed":
        return "failed"
    if whole in ("stopped", "failed"):
        return "stopped"  # where one fails all are ended
    if whole == "stopping":
        return "stopping"
    return "ahead" if leg is None or leg.state == "stopped" else leg.state
