"""How many draft tokens the model accepts."""

from ui.live.section import Section, Shown
from ui.plots.positions import PositionBars
from ui.plots.series import TimePlot
from ui.widgets import label
from workbench import figures
from workbench.measure import series
from workbench.words import Sentence


class Acceptance(Section):
    """The rate now and over time, by position, and the mean accepted length."""

    def __init__(self):
        self.plot = TimePlot(Sentence("Acceptance rate over time"), figures.percent, least=1.0)
        self.positions = PositionBars()
        self.caption = label("accepted by draft position, since the start", "caption")
        super().__init__(Sentence("Acceptance"), self.plot, self.positions, self.caption)

    def draw(self, shown: Shown) -> None:
        self.show_lines(shown.runs)
        for side, run in shown.runs.items():
            line = self.lines[side]
            if run.speculates is False:
                line.show_value(Sentence("off"), "", Sentence("no speculation"))
                continue
            total = run.sample and series.share(run.sample.accepted_tokens, run.sample.draft_tokens)
            rest = Sentence(
                "{length} {length:token|tokens} a step · {total} since the start",
                {"length": figures.number(run.rates.mean_accepted, 2), "total": figures.percent(total)},
            )
            line.show_value(figures.percent(run.rates.acceptance), "", rest)
        drafting = {side: run for side, run in shown.runs.items() if run.speculates}
        self.plot.show_lines(shown.over_time("acceptance", drafting), shown.span_s)
        shares = {side: series.by_position(run.sample) for side, run in drafting.items()}
        self.positions.show_shares(shares)
        for widget in (self.positions, self.caption):
            widget.setVisible(any(shares.values()))
        self.plot.setVisible(bool(drafting))
