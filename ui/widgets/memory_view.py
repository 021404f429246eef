"""An engine's memory: the estimate as a waterfall, once it has started its own figures over it, and what they mean."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label
from ui.widgets.waterfall import ESTIMATE, Part, Waterfall
from workbench import figures
from workbench.catalog.capacity import Capacity
from workbench.engine import overlay
from workbench.engine_events import EngineMemory
from workbench.words import Sentence

COLOURS = {"draft": "accepted", "kv": "kv", "free": "line"}
LEARNED = Sentence("Last start")


class MemoryView(QWidget):
    """`side` colours the weights."""

    def __init__(self, side: str):
        super().__init__()
        self._colours = COLOURS | {"weights": side, "both": side}
        self.waterfall = Waterfall()
        language.bind(self.waterfall.setAccessibleName, "Memory of this engine")
        self.lines = [label(role="caption", wrap=True) for _ in range(3)]
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        for widget in (self.waterfall, *self.lines):
            column.addWidget(widget)

    def show_memory(self, found: Capacity, told: EngineMemory, failed: bool = False) -> None:
        """`told` is empty until an engine says something; one that `failed` shows no sentence, its card has its own."""
        parts = [
            Part(row.name, row.estimate, row.measured, self._colours.get(row.part, "muted"))
            for row in overlay.rows(found, told)
        ]
        self.waterfall.show_parts(parts, found.total, LEARNED if found.learned else ESTIMATE)
        said = list(overlay.sentences(found, told))
        if not said and found.fits and not failed:
            said = [found.sentence]
        if found.learned and not failed and told == EngineMemory():
            said.append(Sentence("Estimated from what the last such start took."))
        if found.roofline_tok_s and not failed:
            speed = {"speed": figures.number(found.roofline_tok_s)}
            said.append(
                Sentence(
                    "At most {speed} tok/s for one conversation, by the memory's bandwidth as measured here."
                    if found.roofline_measured
                    else "At most {speed} tok/s for one conversation, by the memory's bandwidth.",
                    speed,
                )
            )
        for line, sentence in zip(self.lines, [*said, "", "", ""], strict=False):
            language.show(line.setText, sentence)
            line.setVisible(bool(sentence))

    def text(self) -> str:
        """What stands below the waterfall."""
        return " ".join(line.text() for line in self.lines if line.text())
