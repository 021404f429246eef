"""Offers the sensitivity scan, and shows how far it is."""

from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui.quantize.scans import Scans
from ui.widgets.button import button
from ui.widgets.worded_bar import WordedBar, stage_words
from workbench.words import say


class ScanBar(QWidget):
    """Draws `scans` on `draw(locked)`; `locked` while a run has the machine."""

    def __init__(self, scans: Scans):
        super().__init__()
        self._scans = scans
        self._shown = WordedBar("caption", wrap=True)
        self.words, self.bar = self._shown.words, self._shown.bar
        self.scan = button("Scan sensitivity", scans.scan, icon="radar-line")
        self.cancel = button("Cancel", scans.cancel, icon="stop-circle-line")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 4, 0, 0)
        row.setSpacing(12)
        row.addWidget(self._shown, 1)
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
        ending = self._scans.ending
        parts = [stage_words(progress.stage, ending)]
        if progress.total and not ending:
            parts.append(say("{done} of {total}", done=progress.done, total=progress.total))
        self._shown.show_progress(*parts, share=progress.share, left_s=None if ending else progress.left_s())
