"""Where the parts of the Quantize page stand, and which of them the work's state shows."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSplitter, QStackedWidget, QVBoxLayout, QWidget

from ui import language
from ui.quantize.amend_bar import AmendBar
from ui.quantize.amending import Amending
from ui.quantize.check_list import CheckList
from ui.quantize.choosing import Choosing
from ui.quantize.conflict_list import ConflictList
from ui.quantize.details_pair import DetailsPair
from ui.quantize.exports import Exports
from ui.quantize.history import History
from ui.quantize.notes import NoteList
from ui.quantize.progress_line import ProgressLine
from ui.quantize.recipe_box import RecipeBox
from ui.quantize.result_card import ResultCard
from ui.quantize.setup_bar import SetupBar
from ui.quantize.strip_card import StripCard
from ui.widgets import EmptyState, FailureCard, button, label
from ui.widgets.block_strip import BlockStrip
from ui.widgets.strip_cell import Cell
from workbench import figures
from workbench.draft import Draft
from workbench.errors import WorkbenchError
from workbench.quant_run import QuantRun

STRIP_WIDTH = 412  # seven columns with room for "GPTQ 4"


class Surface(QStackedWidget):
    """Either the empty state or the work. `recipes`, `summary` and `history` belong into the page's title line."""

    models_wanted = Signal()

    def __init__(self, choosing: Choosing, exports: Exports):
        super().__init__()
        self.recipes = RecipeBox()
        self.history = History()
        self.summary = label(role="muted")
        self.conflicts = ConflictList()
        self.strip = BlockStrip()
        self.left = StripCard(self.strip, choosing.scans, choosing.mixes)
        self.details = DetailsPair(choosing.looks, choosing.tries)
        self.setup = SetupBar()
        self.amend, self.progress = AmendBar(), ProgressLine()
        self.notes = NoteList()
        self.again = button("Try again", kind="primary", icon="refresh-line")
        self.report = button("Open report", icon="file-chart-line")
        self.failure, self.checks = FailureCard(self.again, self.report), CheckList()
        self.failure.layout().insertWidget(2, self.checks)
        self.result = ResultCard(exports)
        go = button("Go to Models", self.models_wanted.emit, kind="primary", icon="stack-line")
        self.addWidget(
            EmptyState("scissors-cut-line", "Nothing to quantize yet", "Pick a model in Models, then Quantize.", go)
        )
        self.addWidget(self._work())

    def show_draft(self, draft: Draft, run: QuantRun | None, amending: Amending, cells: Sequence[Cell]) -> None:
        """Show the plan's side: recipe, conflicts, cells, setup; in a run what is wanted of its blocks to come."""
        running, open_to_change = amending.running, amending.first is not None
        shown, done = draft.plan is not None or run is not None, bool(run and run.path)
        self.setCurrentIndex(int(shown))
        self.recipes.setVisible(shown)
        self.recipes.setEnabled(draft.model is not None and (open_to_change or not running))
        self.summary.setVisible(draft.plan is not None)
        self.recipes.show_recipe(draft.recipe)
        self.recipes.show_plan(draft.plan if open_to_change or not running else None)
        self.conflicts.show_plan(amending.barred if running else None if done else draft.plan)
        self.amend.show_change(amending)
        self.left.show_plan(draft.plan, cells, running)
        if draft.plan and draft.output:
            self.setup.show_setup(draft.recipe, draft.output)
            self._show_summary(draft)

    def show_run(self, draft: Draft, run: QuantRun | None, running: bool, folder: Path | None) -> None:
        """Show the run's side: the line that moves, or how it ended, and what it had to tell."""
        ended = run if run and not running else None
        done, failed = bool(ended and ended.path), bool(ended and ended.failed)
        self.left.show_changes(tuple(change.from_block for change in run.amended) if run else ())
        self.progress.setVisible(running)
        self.setup.setVisible(draft.plan is not None and not running and not done)
        self.result.setVisible(done)
        if done:
            self.result.show_run(ended, draft.plan, draft.model.folder if draft.model else None)
        if failed and self.failure.isHidden():
            hint = ended.hint.template if ended.hint else ""
            values = (ended.hint.values if ended.hint else {}) | ended.failed.values
            self.failure.show_failure(WorkbenchError(ended.failed.template, hint, **values), _log(folder))
        self.failure.setVisible(failed)
        self.checks.show_checks(run.checks if failed else [])
        self.again.setEnabled(draft.plan is not None and not draft.plan.blocks)
        self.notes.show_run(None if failed else run, cancelled=bool(ended and ended.cancelled))

    def _show_summary(self, draft: Draft) -> None:
        plan, fit = draft.plan, draft.fit
        values = {"bits": figures.number(plan.average_bits, 2), "size": figures.bytes_of(plan.predicted_bytes)}
        if fit is None:
            language.bind(self.summary.setText, "{bits} bits avg · {size}", **values)
        elif fit.fits:
            language.bind(self.summary.setText, "{bits} bits avg · {size} · fits", **values)
        else:
            excess = figures.more_than(fit.needed, fit.available)
            language.bind(self.summary.setText, "{bits} bits avg · {size} · ✕ {excess}", **values, excess=excess)
        language.show(self.summary.setToolTip, fit.sentence if fit else "")

    def _work(self) -> QWidget:
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setChildrenCollapsible(False)
        split.addWidget(self.left)
        split.addWidget(self.details)
        split.setStretchFactor(1, 1)
        split.setSizes([STRIP_WIDTH, 800])
        work = QWidget()
        column = QVBoxLayout(work)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addWidget(self.conflicts)
        column.addWidget(self.failure)
        column.addWidget(split, 1)
        column.addWidget(self.notes)
        column.addWidget(self.result)
        column.addWidget(self.setup)
        column.addWidget(self.amend)
        column.addWidget(self.progress)
        return work


def _log(folder: Path | None) -> str:
    try:
        return (folder / "worker.log").read_text(encoding="utf-8", errors="replace")[-20_000:] if folder else ""
    except OSError:
        return ""
