"""One engine's start: its parts on a line, what is still to come in words, and the last line that it printed."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.widgets.elided import Elided
from ui.widgets.label import label
from ui.widgets.start_timeline import Segment, StartTimeline
from workbench.engine import start
from workbench.runs import EngineRun
from workbench.words import Sentence


class StartView(QWidget):
    """Hidden while there is nothing to say of a start."""

    def __init__(self, side: str):
        super().__init__()
        self.timeline = StartTimeline(side)
        language.bind(self.timeline.setAccessibleName, "Parts of the start")
        self.progress = label(role="muted", wrap=True)
        self.last_line = Elided("mono")
        self.last_line.setProperty("tone", "muted")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(10)
        for part in (self.timeline, self.progress, self.last_line):
            column.addWidget(part)
        self.hide()

    def show_start(self, run: EngineRun, state: str, now_s: float, silent_s: float) -> None:
        """`state` as of `Engines.state`; it has said nothing for `silent_s`."""
        seen = bool(run.phases) and state in ("starting", "stopping", "ready", "failed")
        self.timeline.setVisible(seen)
        if seen:
            until_s = now_s - silent_s if state == "failed" else now_s
            shown = [
                Segment(start.NAMES[each.name], each.seconds, each.running, each.expected_s)
                for each in start.phases(run, until_s)
            ]
            self.timeline.show_segments(shown)
        words: Sentence | str = ""
        if state == "starting":
            words = start.outlook(run, now_s, silent_s) or ""
        elif state == "ready" and run.ready:
            words = start.readiness(run.ready)
        elif state == "failed" and run.error and "code" in run.error.values:
            words = Sentence("It ended with status {code}.", {"code": run.error.values["code"]})
        self.progress.setVisible(bool(words))
        language.show(self.progress.setText, words)
        busy = state == "starting" and bool(run.log)
        self.last_line.setVisible(busy)
        if busy:
            self.last_line.show_text(run.log[-1][:200])
        self.setVisible(seen or bool(words) or busy)
