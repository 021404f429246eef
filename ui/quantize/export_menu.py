"""The button that writes a result in another tool's format; while it does, the button ends that."""

from PySide6.QtWidgets import QMenu, QVBoxLayout, QWidget

from ui import language
from ui.quantize.exports import Exports
from ui.widgets import button
from ui.widgets.elided import Elided
from ui.widgets.worded_bar import stage_words
from workbench import figures
from workbench.errors import WorkbenchError
from workbench.export import FORMATS
from workbench.words import Sentence, say


class ExportMenu(QWidget):
    """Shows the state of `exports`; what cannot be made is off and says why."""

    def __init__(self, exports: Exports):
        super().__init__()
        self._exports = exports
        self.lines = QMenu(self)
        self.lines.setToolTipsVisible(True)
        self.lines.aboutToShow.connect(self._fill)
        self.button = button("Export", self._on_clicked, icon="share-forward-line")
        self.state = Elided("caption")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.button)
        column.addWidget(self.state)
        exports.changed.connect(self.draw)
        language.changed.connect(self.draw)
        self.draw()

    def draw(self) -> None:
        exports, refusal = self._exports, self._exports.refusal
        language.bind(self.button.setText, "Cancel export" if exports.progress else "Export")
        self.button.setEnabled(bool(exports.progress) or (bool(exports.offers) and refusal is None))
        why = str(Sentence(refusal.message, refusal.values)) if refusal else ""
        self.button.setToolTip(why or say("Write the result in AutoAWQ's or GPTQ's format"))
        self.button.setAccessibleDescription(self.button.toolTip())
        self.state.show_text(self._told())
        self.state.setVisible(bool(self.state.full))

    def _told(self) -> str:
        exports = self._exports
        if exports.progress:
            return f"{stage_words(exports.progress.stage)} {figures.percent(exports.progress.share)}"
        if exports.error:
            return f"{exports.error} {exports.error.hint}".strip()
        return say("Written to {folder}", folder=str(exports.output)) if exports.output else ""

    def _on_clicked(self) -> None:
        if self._exports.progress:
            self._exports.cancel()
        else:
            self.lines.popup(self.button.mapToGlobal(self.button.rect().bottomLeft()))

    def _fill(self) -> None:
        self.lines.clear()
        for form, offer in self._exports.offers.items():
            action = self.lines.addAction(FORMATS[form], lambda form=form: self._exports.write(form))
            if isinstance(offer, WorkbenchError):
                action.setEnabled(False)
                action.setToolTip(str(offer))
            else:
                action.setText(f"{FORMATS[form]}   {figures.bytes_of(offer.predicted_bytes)}")
