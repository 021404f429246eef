"""The KV cache: how full over time, and which block is what."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui.live.block_part import BlockPart
from ui.live.section import Section, Shown
from ui.plots.kv_pages import Share, ShareBars
from ui.plots.series import TimePlot
from ui.widgets import label
from ui.widgets.side_table import SideTable
from workbench import figures
from workbench.measure import blocks, series
from workbench.runs import EngineRun
from workbench.words import Sentence


class Cache(Section):
    """Usage, the map of each engine core's blocks where the engine tells it, and what is wasted and reused."""

    def __init__(self):
        self.plot = TimePlot(Sentence("KV cache in use over time"), figures.percent, least=0.1)
        self.bars = ShareBars()
        self.reason = label(role="caption", wrap=True)
        self.parts: dict[tuple[str, int], BlockPart] = {}
        self.table = SideTable(
            {
                "unfilled": Sentence("empty places in last blocks"),
                "waste": Sentence("of the places held"),
                "prefix": Sentence("prefix cache hits since the start"),
                "prefix_now": Sentence("prefix cache hits now"),
            }
        )
        self._maps = QVBoxLayout()
        self._maps.setContentsMargins(0, 4, 0, 0)
        self._maps.setSpacing(8)
        held = QWidget()
        held.setLayout(self._maps)
        super().__init__(Sentence("KV cache"), self.plot, self.bars, self.reason, held, self.table)

    def draw(self, shown: Shown) -> None:
        self.show_lines(shown.runs)
        bars, reasons = [], []
        for key, run in shown.runs.items():
            used = series.blocks_used(run.sample)
            rest: Sentence | str = ""
            if used:
                size = run.sample.kv_block_size if run.sample else None
                values = {
                    "used": figures.count(used[0]),
                    "all": figures.count(used[1]),
                    "size": size or figures.DASH,
                }
                rest = Sentence("{used} of {all} blocks of {size} tokens", values)
                if not run.blocks.latest:
                    bars.append(Share(key, (("kv", series.share(*used) or 0.0),)))
                    reasons.append(run.usage_only)
            self.lines[key].show_value(figures.percent(run.sample.kv_usage if run.sample else None, 1), "", rest)
        self.plot.show_lines(shown.over_time("kv_usage"), shown.span_s)
        self.bars.show_shares(tuple(bars))
        self.bars.setVisible(bool(bars))
        self.reason.setVisible(bool(bars))
        if reason := next(filter(None, reasons), None):
            self.reason.setText(str(Sentence("usage only: {reason}", {"reason": reason})))
        else:
            self.reason.setText(str(Sentence("usage only: this engine does not tell which block is what")))
        self.table.show_values({key: _values(run) for key, run in shown.runs.items()})
        self.draw_quick(shown)

    def draw_quick(self, shown: Shown) -> None:
        """The maps alone: they change ten times a second."""
        wanted = {(key, rank): map_ for key, run in shown.runs.items() for rank, map_ in run.blocks.latest.items()}
        for each in wanted:
            if each not in self.parts:
                self.parts[each] = BlockPart(*each)
                self._maps.addWidget(self.parts[each])
        for each, part in self.parts.items():
            part.setVisible(each in wanted)
            if each in wanted:
                part.show_map(wanted[each])


def _values(run: EngineRun) -> dict[str, Sentence | str]:
    sample, values = run.sample, {}
    if maps := list(run.blocks.latest.values()):
        waste = blocks.waste(maps)
        if waste is not None:
            values["unfilled"] = figures.tokens(waste[0])
            values["waste"] = figures.percent(series.share(*waste))
    if sample:
        values["prefix"] = figures.percent(series.share(sample.prefix_hits, sample.prefix_queries))
    values["prefix_now"] = figures.percent(run.rates.prefix_hits)
    return values
