"""What came out of a run: sizes and quality beside the original and plain rounding, and where to go with it."""

from pathlib import Path

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from ui import language
from ui.quantize.check_list import CheckList
from ui.quantize.export_menu import ExportMenu
from ui.quantize.exports import Exports
from ui.widgets import Card, button, label
from ui.widgets.elided import Elided
from ui.widgets.label import restyle
from ui.widgets.reflow import Reflow
from workbench import figures
from workbench.plan import Plan
from workbench.quant_run import QuantRun
from workbench.words import Sentence

HEADS = ("", "size", "KL, nats per token", "perplexity", "same top token")


class ResultCard(Card):
    """Signals: `serve_wanted(original, result)` takes both folders on, `report_wanted` shows the run's report."""

    serve_wanted = Signal(object, object)
    report_wanted = Signal()

    def __init__(self, exports: Exports):
        super().__init__()
        self._original: Path | None = None
        self._result: Path | None = None
        self.heading = label(role="section")
        self.place = Elided("muted")
        self.place.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(4)
        for column, head in enumerate(HEADS):
            if head:
                self._grid.addWidget(label(head, "caption"), 0, column, Qt.AlignmentFlag.AlignRight)
        self.rows = [self._row(row) for row in (1, 2, 3)]
        self.serve = button("Serve both", self._serve, kind="primary", icon="play-line")
        self.open = button("Open folder", self._open, icon="folder-open-line")
        self.report = button("Open report", self.report_wanted.emit, icon="file-chart-line")
        self.export = ExportMenu(exports)
        self.checks = CheckList()
        words, beside = QWidget(), QWidget()
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        for part in (self.heading, self.place, self.checks):
            column.addWidget(part)
        column.addStretch(1)
        actions = Reflow(2)
        actions.add(self.serve, self.report, self.open, self.export)
        row = QHBoxLayout(beside)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(24)
        row.addLayout(self._grid)
        row.addWidget(actions, 1, Qt.AlignmentFlag.AlignTop)
        both = Reflow(2, 1, across=24, stretch=(1, 0))
        both.add(words, beside)
        self.body.addWidget(both)

    def show_run(self, run: QuantRun, plan: Plan | None, original: Path | None) -> None:
        """Show a run that is done."""
        self._original, self._result = original, Path(run.path)
        wrong = run.failed_check is not None
        language.bind(self.heading.setText, "Done, but a check failed" if wrong else "Done and verified")
        restyle(self.heading, "tone", "rejected" if wrong else "")
        self.checks.show_checks(run.checks)
        self.place.show_text(run.path)
        self.place.setToolTip(run.path)
        own = run.quality.get(self._result.name)
        plain = next((found for name, found in run.quality.items() if name != self._result.name), None)
        before = figures.bytes_of(plan.model.weight_bytes if plan else None)
        perplexity = figures.number(own.original_perplexity if own else None)
        self._fill(0, Sentence("Original"), "original", before, figures.DASH, perplexity, figures.DASH)
        after = figures.bytes_of(run.size)
        for row, found, words, tone, size in (
            (1, own, Sentence("Quantized"), "quantized", after),
            (2, plain, Sentence("Plain rounding"), "muted", figures.DASH),
        ):
            self._fill(
                row, words, tone, size, figures.number(found.kl if found else None),
                figures.number(found.perplexity if found else None),
                figures.percent(found.top1_agreement if found else None, 1),
            )  # fmt: skip
        for cell in self.rows[2]:
            cell.setVisible(plain is not None)
        self.serve.setEnabled(original is not None and self._result.is_dir() and not wrong)
        self.serve.setToolTip(str(Sentence(run.failed_check.name)) if wrong else "")
        self.open.setEnabled(self._result.is_dir())

    def texts(self) -> list[list[str]]:
        """The table as it reads."""
        return [[cell.text() for cell in row] for row in self.rows]

    def _row(self, row: int) -> list[QLabel]:
        cells = [label() for _ in HEADS]
        for column, cell in enumerate(cells):
            side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
            self._grid.addWidget(cell, row, column, side)
        return cells

    def _fill(self, row: int, words: Sentence, tone: str, *values: str) -> None:
        cells = self.rows[row]
        language.show(cells[0].setText, words)
        restyle(cells[0], "tone", tone)
        for cell, value in zip(cells[1:], values, strict=True):
            cell.setText(value)

    def _serve(self) -> None:
        if self._original and self._result:
            self.serve_wanted.emit(self._original, self._result)

    def _open(self) -> None:
        if self._result:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._result)))
