"""Says of each engine when drafting makes it slower, and offers to serve without."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.widgets import Banner, button
from ui.widgets.slot_tab import NAMES
from workbench.words import Sentence


class Losses(QWidget):
    """`switched_off(side)` when the user takes the offer; what was dismissed stays away until it was past once."""

    switched_off = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._banners: dict[str, Banner] = {}
        self._dismissed: set[str] = set()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.hide()

    def show_loss(self, side: str, told: Sentence | None, two: bool) -> None:
        """`told` is what the engine's counters say; None where drafting may pay. With `two` engines it is named."""
        if told is None:
            self._dismissed.discard(side)
            self._remove(side)
        elif side not in self._dismissed:
            if side not in self._banners:
                self._add(side, told)
            named = Sentence("{side}: {text}", {"side": NAMES[side], "text": told}) if two else told
            language.show(self._banners[side].sentence.setText, named)
            language.show(self._banners[side].setAccessibleName, named)
        self.setVisible(bool(self._banners))

    def _add(self, side: str, told: Sentence) -> None:
        off = button("Serve without drafting", lambda: self.switched_off.emit(side))
        banner = Banner("warning", told, off)
        banner.closed.connect(lambda: self._dismiss(side))
        self._banners[side] = banner
        self._column.addWidget(banner)

    def _dismiss(self, side: str) -> None:
        self._dismissed.add(side)
        self._banners.pop(side, None)
        self.setVisible(bool(self._banners))

    def _remove(self, side: str) -> None:
        if banner := self._banners.pop(side, None):
            self._column.removeWidget(banner)
            banner.hide()
            banner.deleteLater()
