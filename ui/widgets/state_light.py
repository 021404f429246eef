"""An engine's state as a light and a word."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui import language, theme
from ui.widgets.label import label
from workbench.words import Sentence

# Colour, and whether the light is full, half or a ring: the word beside it says the same.
LIGHTS = {
    "stopped": ("muted", "ring", Sentence("stopped")),
    "ahead": ("muted", "ring", Sentence("not yet started")),
    "waiting": ("muted", "half", Sentence("waiting")),
    "starting": ("prefill", "half", Sentence("starting")),
    "ready": ("accepted", "full", Sentence("ready")),
    "stopping": ("muted", "half", Sentence("stopping")),
    "failed": ("rejected", "full", Sentence("failed")),
}


class StateLight(QWidget):
    """`show_state("ready")`; the states are those of `Engines.state`, and "ahead" of one whose turn comes."""

    def __init__(self):
        super().__init__()
        self._lamp = _Lamp()
        self.word = label()
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(6)
        line.addWidget(self._lamp)
        line.addWidget(self.word)
        self.show_state("stopped")

    def show_state(self, state: str) -> None:
        colour, shape, word = LIGHTS[state]
        self._lamp.show_light(colour, shape)
        language.show(self.word.setText, word)
        language.show(self.setAccessibleName, word)


class _Lamp(QWidget):
    def __init__(self):
        super().__init__()
        self._light = ("muted", "ring")
        self.setFixedSize(QSize(12, 12))
        theme.changed.connect(self.update)

    def show_light(self, colour: str, shape: str) -> None:
        self._light = (colour, shape)
        self.update()

    def paintEvent(self, event) -> None:
        name, shape = self._light
        colour = QColor(getattr(theme.tokens(), name))
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        place = QRectF(1.5, 1.5, 9, 9)
        painter.setPen(QPen(colour, 1.5))
        painter.setBrush(colour if shape == "full" else Qt.BrushStyle.NoBrush)
        painter.drawEllipse(place)
        if shape == "half":
            painter.setBrush(colour)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawEllipse(QPointF(6, 6), 2.5, 2.5)
