"""How far a run is, how long it still takes, and Cancel."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout

from ui import language
from ui.widgets import button
from ui.widgets.worded_bar import WordedBar, stage_words
from workbench import figures
from workbench.quant_run import QuantRun
from workbench.words import say


class ProgressLine(QFrame):
    """Signals: `cancelled` when the user ends the run, `followed(on)` when the view should go along with it."""

    cancelled = Signal()
    followed = Signal(bool)

    def __init__(self):
        super().__init__()
        self.setObjectName("card")
        self._shown = WordedBar()
        self.words, self.bar = self._shown.words, self._shown.bar
        self.follow = button("Follow", kind="quiet", icon="focus-3-line")
        self.follow.setCheckable(True)
        self.follow.setChecked(True)
        self.follow.clicked.connect(self.followed)
        language.bind(self.follow.setToolTip, "Show each layer as it is finished")
        self.cancel = button("Cancel", self.cancelled.emit, icon="stop-circle-line")
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 12, 12, 12)
        row.setSpacing(12)
        row.addWidget(self._shown, 1)
        row.addWidget(self.follow)
        row.addWidget(self.cancel)

    def show_run(self, run: QuantRun, block: int | None, elapsed_s: float, ending: bool) -> None:
        """`block` is the one at hand, None between blocks; `ending`: the worker is being ended."""
        parts = [stage_words(run.stage, ending)]
        if block is not None and not ending:
            parts = [
                say("block {block}", block=block), say("{done} of {total} layers", done=run.done, total=run.total)
            ]  # fmt: skip
        elapsed = say("{time} elapsed", time=figures.clock(elapsed_s))
        self._shown.show_progress(*parts, elapsed, share=run.share, left_s=None if ending else run.left_s())
        self.cancel.setEnabled(not ending)
