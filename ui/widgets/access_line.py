"""Where other programs reach a running engine: its address, and its key to copy."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui.widgets.copy_button import copy_button
from ui.widgets.elided import Elided
from ui.widgets.label import label
from ui.widgets.line import line
from ui.widgets.reflow import Reflow
from workbench.engine_events import EngineReady

ADDRESS = 184  # pixels: an address of this machine is seen with its port


class AccessLine(QWidget):
    """Hidden until an engine is ready. The key is never shown, only copied."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: EngineReady | None = None
        self.address = Elided("mono")
        self.address.setMinimumWidth(ADDRESS)
        self.copy_address = copy_button("Copy address", lambda: f"{self._ready.url}/v1")
        self.copy_key = copy_button("Copy key", lambda: self._ready.key)
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
