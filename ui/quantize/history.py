"""Earlier quantizations, to look at again."""

from PySide6.QtCore import Signal

from ui.widgets.menu_button import MenuButton
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


class History(MenuButton):
    """A menu that is read from the job folders when opened. `picked(folder)` is a job's."""

    picked = Signal(object)

    def __init__(self):
        super().__init__(Sentence("Earlier quantizations"), "history-line", self.fill)

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
