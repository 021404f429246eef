"""Takes a vLLM command of any year and shows, before it is taken, what became of its flags."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from ui import language, theme
from ui.widgets.button import button
from ui.widgets.label import label
from workbench.engine.facts import EngineFacts
from workbench.engine.old_flags import Translation, translate
from workbench.errors import WorkbenchError


class PasteDialog(QDialog):
    """`taken(profile)` when the user takes what the command means."""

    taken = Signal(object)

    def __init__(self, parent: QWidget):
        super().__init__(parent)
        self._facts: EngineFacts | None = None
        self._found: Translation | None = None
        language.bind(self.setWindowTitle, "Take a vLLM command")
        self.text = QPlainTextEdit()
        self.text.setFont(theme.mono())
        self.text.setPlaceholderText("vllm serve … --speculative-model … --scheduler-policy priority")
        self.text.setTabChangesFocus(True)
        language.bind(self.text.setAccessibleName, "The command, as it was written")
        self.text.textChanged.connect(self._translate)
        self.notes = label(role="caption", wrap=True)
        self.take_button = button("Take", self._take, kind="primary")
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(button("Cancel", self.reject))
        row.addWidget(self.take_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(label("The command, as it was written", "caption"))
        column.addWidget(self.text, 1)
        column.addWidget(self.notes)
        column.addLayout(row)
        self.resize(640, 360)

    def ask(self, facts: EngineFacts) -> None:
        """Ask for a command for the engine that `facts` describe."""
        self._facts = facts
        self.text.clear()
        self._translate()
        self.open()
        self.text.setFocus()

    def _translate(self) -> None:
        self._found, told = None, ""
        if self._facts and self.text.toPlainText().strip():
            try:
                self._found = translate(self.text.toPlainText(), self._facts)
                told = "\n".join(f"· {sentence}" for _, sentence in self._found.notes)
            except WorkbenchError as error:
                told = f"{error} {error.hint}"
        self.notes.setText(told)
        self.notes.setVisible(bool(told))
        self.take_button.setEnabled(self._found is not None)

    def _take(self) -> None:
        if self._found:
            self.accept()
            self.taken.emit(self._found.profile)
