"""Why something failed, what to do next, and the log; nothing else is lost."""

from collections.abc import Sequence

from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout

from ui import icons, language, theme
from ui.widgets.button import button
from ui.widgets.label import label
from workbench.errors import WorkbenchError
from workbench.events import Failed
from workbench.words import Sentence


class FailureCard(QFrame):
    """Hidden until `show_failure`; `actions` (made with `button`) are the next steps of this kind of work."""

    def __init__(self, *actions: QPushButton):
        super().__init__()
        self.setObjectName("failure")
        self._sign = QLabel()
        icons.bind(self._set_sign, "close-circle-fill", "rejected")
        self.sentence = label(role="section", wrap=True)
        self.hint = label(role="muted", wrap=True)
        self._log = QPlainTextEdit(readOnly=True)
        self._log.setObjectName("log")
        self._log.setFont(theme.mono())
        self._log.hide()
        language.bind(self._log.setAccessibleName, "Log")
        self.log_button = button("Show log", self._toggle_log, kind="quiet", icon="file-list-2-line")
        top = QHBoxLayout()
        top.setSpacing(12)
        top.addWidget(self._sign)
        top.addWidget(self.sentence, 1)
        self.row = QHBoxLayout()
        self.row.setSpacing(8)
        for action in actions:
            self.row.addWidget(action)
        self.row.addWidget(self.log_button)
        self.row.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(16, 12, 16, 12)
        whole.setSpacing(8)
        whole.addLayout(top)
        whole.addWidget(self.hint)
        whole.addLayout(self.row)
        whole.addWidget(self._log, 1)
        self.hide()

    def show_failure(self, error: Failed | WorkbenchError | BaseException, log: Sequence[str] | str = "") -> None:
        """Show the cause and the next step. `log` is the text or the lines to unfold; none hides the button."""
        if isinstance(error, Failed):
            sentence, hint = Sentence(error.message, error.values), Sentence(error.hint, error.values)
        elif isinstance(error, WorkbenchError):
            sentence, hint = Sentence(error.message, error.values), Sentence(error.hint_template, error.values)
        else:
            sentence, hint = f"{type(error).__name__}: {error}", ""
        language.show(self.sentence.setText, sentence)
        language.show(self.setAccessibleName, sentence)
        told = hint if isinstance(hint, str) or hint.template else ""
        language.show(self.hint.setText, told)
        self.hint.setVisible(bool(told))
        text = log if isinstance(log, str) else "\n".join(log)
        if isinstance(error, Failed) and error.details:
            text = f"{text}\n{error.details}".strip()
        self._log.setPlainText(text)
        self._log.hide()
        self.log_button.setVisible(bool(text))
        self.show()

    def _toggle_log(self) -> None:
        self._log.setVisible(self._log.isHidden())
        if self._log.isVisible():
            self._log.verticalScrollBar().setValue(self._log.verticalScrollBar().maximum())

    def _set_sign(self, icon) -> None:
        self._sign.setPixmap(icon.pixmap(20, 20))
