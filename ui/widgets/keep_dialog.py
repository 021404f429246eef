"""Asks under which name something is kept."""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.label import label
from workbench import named_files
from workbench.errors import WorkbenchError
from workbench.words import Sentence


class KeepDialog(QDialog):
    """Asks beside the window, keeps and closes; a name that cannot be one is told here.

    `keep(what, name)` does it, `exists(name)` says whether that replaces something, which `replaced` then tells.
    `kept` is emitted with what `keep` returned.
    """

    kept = Signal(object)

    def __init__(
        self,
        parent: QWidget,
        title: Sentence,
        naming: Sentence,
        replaced: Sentence,
        exists: Callable[[str], bool],
        keep: Callable[[Any, str], Any],
    ):
        super().__init__(parent)
        self._what: Any = None
        self._replaced, self._exists, self._keep = replaced, exists, keep
        language.show(self.setWindowTitle, title)
        self.name = QLineEdit(maxLength=named_files.LONGEST)
        language.show(self.name.setAccessibleName, naming)
        self.name.textChanged.connect(self._on_name)
        self.note = label(role="caption", wrap=True)
        self.save = button("Save", self._save, kind="primary")
        self.save.setDefault(True)
        asked = label(role="caption")
        language.show(asked.setText, naming)
        row = QHBoxLayout()
        row.addWidget(self.note, 1)
        row.addWidget(button("Cancel", self.reject))
        row.addWidget(self.save)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(asked)
        column.addWidget(self.name)
        column.addLayout(row)
        self.resize(420, 120)

    def ask(self, what: Any, proposed: str) -> None:
        """Ask for the name of `what`."""
        self._what = what
        self.name.setText(proposed)
        self._on_name()
        self.open()
        self.name.setFocus()
        self.name.selectAll()

    def _on_name(self) -> None:
        self.save.setEnabled(bool(self.name.text().strip()))
        if self._exists(self.name.text().strip()):
            language.show(self.note.setText, self._replaced)
        else:
            language.release(self.note.setText)
            self.note.clear()

    def _save(self) -> None:
        try:
            kept = self._keep(self._what, self.name.text())
        except WorkbenchError as error:
            language.show(self.note.setText, f"{error} {error.hint}")
            return
        self.accept()
        self.kept.emit(kept)
