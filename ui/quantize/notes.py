"""What a run had to tell: a line that unfolds, warnings counted on it."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.widgets import Banner, Fold, label
from workbench.events import Note
from workbench.quant_run import QuantRun
from workbench.words import Sentence


class NoteList(QWidget):
    """Hidden while there is nothing to tell."""

    def __init__(self):
        super().__init__()
        self._shown: list[Note] = []
        self.cancelled = Banner(
            "info", Sentence("The run was cancelled. Nothing of it was kept; what was there before is untouched."),
            closable=False,
        )  # fmt: skip
        self.fold = Fold("Notes of the run", opened=False)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.cancelled)
        column.addWidget(self.fold)
        self.hide()

    def show_run(self, run: QuantRun | None, cancelled: bool) -> None:
        notes = run.notes if run else []
        if notes[: len(self._shown)] != self._shown:
            self._clear()
        for note in notes[len(self._shown) :]:
            line = label(role="body" if note.level == "warning" else "muted", wrap=True)
            language.show(line.setText, Sentence(note.message, note.values))
            self.fold.body.addWidget(line)
        self._shown = list(notes)
        warnings = [note for note in notes if note.level == "warning"]
        last = (warnings or notes)[-1] if notes else None
        self.fold.summarize(Sentence(last.message, last.values) if last else "")
        self.fold.setVisible(bool(notes))
        self.cancelled.setVisible(cancelled)
        self.setVisible(bool(notes) or cancelled)

    def _clear(self) -> None:
        self._shown = []
        while (item := self.fold.body.takeAt(0)) is not None:
            item.widget().deleteLater()
