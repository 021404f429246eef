"""What the scheduler does: requests that run and wait, the batch of each step, and those it puts back."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import theme
from ui.live.section import Section, Shown, recent
from ui.plots.looks import dotted
from ui.plots.series import TimePlot
from ui.plots.step_bars import StepBars
from ui.widgets import label
from ui.widgets.side_table import SideTable
from workbench import figures
from workbench.runs import EngineRun
from workbench.words import Sentence, say


class Steps(Section):
    """Running and waiting over time; where the engine tells its steps, what each of the last ones computed."""

    def __init__(self):
        self.plot = TimePlot(Sentence("Requests running and waiting over time"), least=2.0)
        self.batch = TimePlot(Sentence("Requests in each step over time"), least=2.0)
        self.batch_caption = label("requests in each step (the batch)", "caption")
        self.bars: dict[str, StepBars] = {}
        self.caption = label(role="caption", wrap=True)
        self.caption.setTextFormat(Qt.TextFormat.RichText)
        self.table = SideTable(
            {
                "batch": Sentence("requests in the last step"),
                "preempted": Sentence("preemptions"),
                "missed": Sentence("steps not recorded"),
            }
        )
        self._rows = QVBoxLayout()
        self._rows.setContentsMargins(0, 4, 0, 0)
        self._rows.setSpacing(6)
        held = QWidget()
        held.setLayout(self._rows)
        super().__init__(
            Sentence("Requests and steps"), self.plot, self.batch, self.batch_caption, held, self.caption, self.table
        )

    def draw(self, shown: Shown) -> None:
        self.show_lines(shown.runs)
        for key, run in shown.runs.items():
            values = {"waiting": figures.count(run.sample.waiting if run.sample else None)}
            running = figures.count(run.sample.running if run.sample else None)
            self.lines[key].show_value(running, say("running"), Sentence("{waiting} waiting", values))
        waiting = {dotted(key): points for key, points in shown.over_time("waiting").items()}
        self.plot.show_lines(shown.over_time("running") | waiting, shown.span_s, shown.now_s)
        batches = {
            key: recent(run.steps.at_s, reversed(run.steps.requests), shown.span_s)
            for key, run in shown.runs.items()
            if run.steps.at_s
        }
        self.batch.show_lines(batches, shown.span_s, shown.now_s)
        for widget in (self.batch, self.batch_caption):
            widget.setVisible(bool(batches))
        worn = theme.tokens()
        names = ((worn.prefill, say("prefill upwards")), (worn.decode, say("decode downwards")))
        marks = " &nbsp; ".join(f'<span style="color:{colour}">■</span> {name}' for colour, name in names)
        self.caption.setText(f"{marks}<br>{say('tokens of the last steps, a column a step')}")
        self.draw_quick(shown)

    def draw_quick(self, shown: Shown) -> None:
        """The steps alone: they come ten times a second."""
        told = {key: run.steps for key, run in shown.runs.items() if run.steps.at_s}
        for key in told:
            if key not in self.bars:
                self.bars[key] = StepBars(key)
                self._rows.addWidget(self.bars[key])
        for key, bars in self.bars.items():
            bars.setVisible(key in told)
            if key in told:
                bars.show_steps(told[key].prefill, told[key].decode)
        self.caption.setVisible(bool(told))
        self.table.show_values({key: _values(run) for key, run in shown.runs.items()})


def _values(run: EngineRun) -> dict[str, Sentence | str]:
    values: dict[str, Sentence | str] = {}
    if run.steps.requests:
        values["batch"] = figures.count(run.steps.requests[-1])
        values["missed"] = figures.count(run.steps.missed)
    if run.sample:
        values["preempted"] = figures.count(run.sample.preemptions)
    return values
