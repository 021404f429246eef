"""Where other programs reach a running engine: its address, and its key to copy."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QPushButton, QVBoxLayout, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.elided import Elided
from ui.widgets.label import label
from ui.widgets.line import line
from ui.widgets.reflow import Reflow
from workbench.engine_events import EngineReady

COPIED_MS = 1500
ADDRESS = 184  # pixels: an address of this machine is seen with its port


class AccessLine(QWidget):
    """Hidden until an engine is ready. The key is never shown, only copied."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: EngineReady | None = None
        self.address = Elided("mono")
        self.address.setMinimumWidth(ADDRESS)
        self.copy_address = button("Copy address", self._copy_address, kind="quiet")
        self.copy_key = button("Copy key", self._copy_key, kind="quiet")
        where = line(label("For other programs", "caption"), self.address)
        where.layout().setStretch(1, 1)
        copies = line(None, self.copy_address, self.copy_key)
        both = Reflow(2, 1, down=0, stretch=(1, 0))
        both.add(where, copies)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(both)
        self.hide()

    def show_ready(self, ready: EngineReady | None) -> None:
        """Where the engine answers; None while it does not."""
        self.setVisible(ready is not None)
        if ready is self._ready:
            return
        self._ready = ready
        self.address.show_text(f"{ready.url}/v1" if ready else "")
        self.copy_key.setVisible(bool(ready and ready.key))

    def _copy_address(self) -> None:
        self._copy(f"{self._ready.url}/v1", self.copy_address, "Copy address")

    def _copy_key(self) -> None:
        self._copy(self._ready.key, self.copy_key, "Copy key")

    def _copy(self, text: str, pressed: QPushButton, words: str) -> None:
        QApplication.clipboard().setText(text)
        language.bind(pressed.setText, "Copied")
        QTimer.singleShot(COPIED_MS, pressed, lambda: language.bind(pressed.setText, words))
