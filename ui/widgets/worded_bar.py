"""How far a job's worker is: the words of it, and a bar below."""

from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label
from workbench import figures
from workbench.words import say


class WordedBar(QWidget):
    """`words` may say other things while the bar is hidden."""

    def __init__(self, role: str = "body", wrap: bool = False):
        super().__init__()
        self.words = label(role=role, wrap=wrap)
        self.bar = QProgressBar(textVisible=False)
        self.bar.setRange(0, 0)
        language.bind(self.bar.setAccessibleName, "Progress")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.words)
        column.addWidget(self.bar)

    def show_progress(self, *parts: str, share: float | None, left_s: float | None) -> None:
        """`parts` tell where the work is; `share` of it is done and it takes `left_s` seconds more, None: unknown."""
        left = [] if left_s is None else [say("about {time} left", time=figures.clock(left_s))]
        self.words.setText(" · ".join([*parts, *left]))
        self.bar.setRange(0, 0 if share is None else 1000)
        self.bar.setValue(round(1000 * (share or 0)))
        self.bar.setAccessibleDescription(self.words.text())


def stage_words(stage: str, ending: bool = False) -> str:
    """The stage that a worker told, that it has told none yet, or that it is being ended."""
    if ending:
        return say("Ending the worker")
    return say(stage) if stage else say("Starting the worker")
