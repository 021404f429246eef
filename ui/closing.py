"""The one question before work is lost."""

from collections.abc import Callable, Sequence

from PySide6.QtWidgets import QMessageBox, QWidget

from ui.widgets.label import restyle
from workbench.words import Sentence, say


class ClosingQuestion(QMessageBox):
    """Names what would be lost; `go` is called when the user ends it all the same. Open it, never exec it."""

    def __init__(self, window: QWidget, losses: Sequence[Sentence], go: Callable[[], None]):
        super().__init__(window)
        self.setWindowTitle("Lathe")
        self.setText(say("Close Lathe and end what is running?"))
        self.setInformativeText("\n".join(map(str, losses)))
        self.stay_button = self.addButton(say("Keep working"), QMessageBox.ButtonRole.RejectRole)
        self.go_button = self.addButton(say("End and close"), QMessageBox.ButtonRole.DestructiveRole)
        restyle(self.go_button, "kind", "danger")
        self.setDefaultButton(self.stay_button)
        self.setEscapeButton(self.stay_button)
        self._go = go
        self.finished.connect(self._on_finished)

    def _on_finished(self, _code: int) -> None:
        if self.clickedButton() is self.go_button:
            self._go()
        self.deleteLater()
