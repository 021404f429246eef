"""Prefill and decode apart with engines that run already: their addresses and the key that they ask for."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label
from workbench.engine.separation import Separation, of_urls

LINES = 58  # the height of two addresses


class LegUrls(QWidget):
    """`changed` after every key stroke. `separation()` raises WorkbenchError for what is no address, or for none."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.prefill, self.decode = self._addresses(8101), self._addresses(8201)
        self.key = QLineEdit()
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.key.textEdited.connect(self.changed)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        for name, field in (
            (label("Prefill engines, one address a line", "muted"), self.prefill),
            (label("Decode engines, one address a line", "muted"), self.decode),
            (label("The key that all of them ask for", "muted"), self.key),
        ):
            name.setBuddy(field)
            whole.addWidget(name)
            whole.addWidget(field)
        language.bind(self.prefill.setAccessibleName, "Prefill engines, one address a line")
        language.bind(self.decode.setAccessibleName, "Decode engines, one address a line")
        language.bind(self.key.setAccessibleName, "The key that all of them ask for")

    @property
    def summary(self) -> str:
        """How many of each kind."""
        return f"{len(self.prefill.toPlainText().split())}P{len(self.decode.toPlainText().split())}D"

    def separation(self, port: int) -> Separation:
        """What stands here, its front at `port`, 0 for a free one."""
        prefill, decode = (tuple(field.toPlainText().split()) for field in (self.prefill, self.decode))
        return of_urls(prefill, decode, self.key.text().strip(), port)

    def show_separation(self, separation: Separation) -> None:
        """Fill the fields without a word."""
        self.blockSignals(True)
        for field, legs in ((self.prefill, separation.prefill), (self.decode, separation.decode)):
            field.setPlainText("\n".join(leg.url for leg in legs))
        self.key.setText(separation.key)
        self.blockSignals(False)

    def _addresses(self, port: int) -> QPlainTextEdit:
        field = QPlainTextEdit()
        field.setPlaceholderText(f"http://127.0.0.1:{port}")
        field.setTabChangesFocus(True)
        field.setFixedHeight(LINES)
        field.textChanged.connect(self.changed)
        return field
