"""Where a message is typed: Enter sends, Shift+Enter makes a new line, an input method keeps its own Enter."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QPlainTextEdit

from ui import language

LINES = (2, 8)


class Composer(QPlainTextEdit):
    """Grows with its text from two lines to eight. `sent` is emitted when the text is to go; it stays until cleared."""

    sent = Signal()
    escaped = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._composing = False
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        language.bind(self.setPlaceholderText, "Ask something. Enter sends, Shift+Enter makes a new line.")
        language.bind(self.setAccessibleName, "Message")
        self.document().documentLayout().documentSizeChanged.connect(lambda _size: self._fit())
        self._fit()

    @property
    def text(self) -> str:
        return self.toPlainText().strip()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not event.modifiers() & (
            Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier
        ):
            # While an input method composes, Enter chooses its word: it is neither a line nor the end.
            if not self._composing:
                self.sent.emit()
            event.accept()
        elif event.key() == Qt.Key.Key_Escape and not self._composing:
            self.escaped.emit()
        else:
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(200, self.height())

    def _fit(self) -> None:
        lines = min(max(int(self.document().size().height()), LINES[0]), LINES[1])
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 2 * 8 + 4)
