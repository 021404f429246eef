"""How far a run is, how long it still takes, and Cancel."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QVBoxLayout

from ui import language
from ui.widgets import button, label
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
        self.words = label()
        self.bar = QProgressBar(textVisible=False)
        self.bar.setRange(0, 0)
        language.bind(self.bar.setAccessibleName, "Progress")
        self.follow = button("Follow", kind="quiet", icon="focus-3-line")
        self.follow.setCheckable(True)
        self.follow.setChecked(True)
        self.follow.clicked.connect(self.followed)
        language.bind(self.follow.setToolTip, "Show each layer as it is finished")
        self.cancel = button("Cancel", self.cancelled.emit, icon="stop-circle-line")
        column = QVBoxLayout()
        column.setSpacing(8)
        column.addWidget(self.words)
        column.addWidget(self.bar)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 12, 12, 12)
        row.setSpacing(12)
        row.addLayout(column, 1)
        row.addWidget(self.follow)
        row.addWidget(self.cancel)

    def show_run(self, run: QuantRun, block: int | None, elapsed_s: float, ending: bool) -> None:
        """`block` is the one at hand, None between blocks; `ending`: the worker is being ended."""
        parts = []
        if ending:
            parts.append(say("Ending the worker"))
        elif block is not None:
            parts.append(say("block {block}", block=block))
            parts.append(say("{done} of {total} layers", done=run.done, total=run.total))
        else:
            parts.append(say(run.stage) if run.stage else say("Starting the worker"))
        parts.append(say("{time} elapsed", time=figures.clock(elapsed_s)))
        if not ending and (left_s := run.left_s()) is not None:
            parts.append(say("about {time} left", time=figures.clock(left_s)))
        self.words.setText(" · ".join(parts))
        if run.share is None:
            self.bar.setRange(0, 0)
        else:
            self.bar.setRange(0, 1000)
            self.bar.setValue(round(run.share * 1000))
        self.bar.setAccessibleDescription(self.words.text())
        self.cancel.setEnabled(not ending)
