"""Earlier quantizations, to look at again."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QMenu, QToolButton

from ui import icons, language
from workbench import jobs
from workbench.words import Sentence, say

STATES = {
    "running": Sentence("running"),
    "finished": Sentence("finished"),
    "failed": Sentence("failed"),
    "cancelled": Sentence("cancelled"),
    "interrupted": Sentence("interrupted"),
}
MOST = 20


class History(QToolButton):
    """A menu that is read from the job folders when opened. `picked(folder)` is a job's."""

    picked = Signal(object)

    def __init__(self):
        super().__init__()
        icons.bind(self.setIcon, "history-line")
        for setter in (self.setToolTip, self.setAccessibleName):
            language.bind(setter, "Earlier quantizations")
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        self.lines = QMenu(self)
        self.lines.aboutToShow.connect(self.fill)
        self.setMenu(self.lines)

    def fill(self) -> None:
        """List the newest jobs."""
        self.lines.clear()
        found = [job for job in jobs.listing() if job.kind == "quantize" and job.state != "running"][:MOST]
        for job in found:
            name = str(job.spec.get("output", "")).rpartition("/")[2]
            text = f"{job.created:%Y-%m-%d %H:%M}   {name}   {STATES[job.state]}"
            self.lines.addAction(text, lambda folder=job.folder: self.picked.emit(folder))
        if not found:
            self.lines.addAction(say("None yet")).setEnabled(False)
