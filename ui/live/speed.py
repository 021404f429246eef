"""Tokens a second, and how they are shared between prompts and answers."""

from PySide6.QtCore import Qt

from ui import theme
from ui.live.section import Section, Shown
from ui.plots.kv_pages import Share, ShareBars
from ui.plots.series import TimePlot
from ui.widgets import label
from workbench import figures
from workbench.measure.phases import phases
from workbench.words import Sentence, say


class Speed(Section):
    """Generated tokens a second over time; the share of prompt tokens as a bar."""

    def __init__(self):
        self.plot = TimePlot(Sentence("Tokens per second over time"))
        self.phases = ShareBars()
        self.caption = label(role="caption")
        self.caption.setTextFormat(Qt.TextFormat.RichText)
        super().__init__(Sentence("Speed"), self.plot, self.phases, self.caption)

    def draw(self, shown: Shown) -> None:
        self.show_lines(shown.runs)
        bars = []
        for key, run in shown.runs.items():
            decode, prefill = run.rates.tokens_per_s, run.rates.prompt_per_s
            rest = Sentence("prefill {prefill} tok/s", {"prefill": _rate(prefill)})
            self.lines[key].show_value(_rate(decode), say("tok/s"), rest)
            bars.append(Share(key, phases(run.rates)))
        self.plot.show_lines(shown.over_time("tokens_per_s"), shown.span_s)
        self.phases.show_shares(tuple(bars))
        for widget in (self.phases, self.caption):
            widget.setVisible(bool(bars))
        worn = theme.tokens()
        names = ((worn.prefill, say("prefill")), (worn.decode, say("decode")))
        marks = " &nbsp; ".join(f'<span style="color:{colour}">■</span> {name}' for colour, name in names)
        self.caption.setText(f"{marks} &nbsp; {say('tokens of the last second')}")


def _rate(per_s: float | None) -> str:
    """Nothing at all is no measurement of "0.00"."""
    return "0" if per_s == 0 else figures.number(per_s)
