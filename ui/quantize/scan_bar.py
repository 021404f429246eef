"""Offers the sensitivity scan, and shows how far it is."""

from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from ui import language
from ui.quantize.scans import Scans
from ui.widgets.button import button
from ui.widgets.label import label
from workbench import figures
from workbench.words import say


class ScanBar(QWidget):
    """Draws `scans` on `draw(locked)`; `locked` while a run has the machine."""

    def __init__(self, scans: Scans):
        super().__init__()
        self._scans = scans
        self.words = label(role="caption", wrap=True)
        self.bar = QProgressBar(textVisible=False)
        language.bind(self.bar.setAccessibleName, "Progress")
        self.scan = button("Scan sensitivity", scans.scan, icon="radar-line")
        self.cancel = button("Cancel", scans.cancel, icon="stop-circle-line")
        column = QVBoxLayout()
        column.setSpacing(8)
        column.addWidget(self.words)
        column.addWidget(self.bar)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 4, 0, 0)
        row.setSpacing(12)
        row.addLayout(column, 1)
        row.addWidget(self.scan)
        row.addWidget(self.cancel)

    def draw(self, locked: bool) -> None:
        progress, error = self._scans.progress, self._scans.error
        self.bar.setVisible(progress is not None)
        self.cancel.setVisible(progress is not None)
        self.cancel.setEnabled(not self._scans.ending)
        self.scan.setVisible(progress is None)
        self.scan.setEnabled(not locked)
        if progress is not None:
            self._draw_progress()
        elif error:
            self.words.setText(f"{error} {error.hint}".strip())
        elif self._scans.found and self._scans.missing:
            self.words.setText(
                say(
                    "{missing} {missing:layer is|layers are} not measured at the recipe's groups.",
                    missing=self._scans.missing,
                )
            )
        else:
            self.words.setText(say("Measures what rounding each layer alone would cost at 2, 3, 4 and 8 bits."))

    def _draw_progress(self) -> None:
        progress = self._scans.progress
        if self._scans.ending:
            parts = [say("Ending the worker")]
        else:
            parts = [say(progress.stage) if progress.stage else say("Starting the worker")]
            if progress.total:
                parts.append(say("{done} of {total}", done=progress.done, total=progress.total))
            if (left_s := progress.left_s()) is not None:
                parts.append(say("about {time} left", time=figures.clock(left_s)))
        self.words.setText(" · ".join(parts))
        self.bar.setRange(0, 0 if progress.share is None else 1000)
        self.bar.setValue(round(1000 * (progress.share or 0)))
        self.bar.setAccessibleDescription(self.words.text())
