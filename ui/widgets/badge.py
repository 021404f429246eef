"""A short word in a coloured pill; the word says it, the colour helps."""

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QSizePolicy

from ui import language
from ui.widgets.label import restyle
from workbench.words import Sentence

TONES = ("plain", "original", "quantized", "accepted", "rejected")


class Badge(QLabel):
    """`tone` is one of TONES."""

    def __init__(self, template: str = "", tone: str = "plain", **values: Any):
        super().__init__()
        self.setObjectName("badge")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.set_tone(tone)
        if template:
            language.bind(self.setText, template, **values)

    def set_tone(self, tone: str) -> None:
        assert tone in TONES, tone
        restyle(self, "tone", tone)

    def show_text(self, text: Sentence | str, tone: str = "plain") -> None:
        language.show(self.setText, text)
        self.set_tone(tone)
