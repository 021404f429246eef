"""What a slot of the Serve page is: a model that is served here, or a server that somebody else runs."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QWidget

from ui import language
from workbench.words import Sentence

SOURCES = (Sentence("A model on this machine"), Sentence("A running server"))


class SourceChoice(QWidget):
    """`changed` after the user's choice; `elsewhere` is what was chosen."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.box = QComboBox()
        for source in SOURCES:
            self.box.addItem(str(source))
        language.bind(self.box.setAccessibleName, "What answers on this side")
        self.box.activated.connect(lambda _index: self.changed.emit())
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.box, 1)
        language.changed.connect(self._speak)

    @property
    def elsewhere(self) -> bool:
        return self.box.currentIndex() == 1

    def choose(self, elsewhere: bool) -> None:
        """Choose without a word."""
        self.box.setCurrentIndex(int(elsewhere))

    def _speak(self) -> None:
        for index, source in enumerate(SOURCES):
            self.box.setItemText(index, str(source))
