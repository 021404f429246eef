"""A number with its unit smaller and muted, and a caption below."""

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label, restyle


class Figure(QWidget):
    """Shows a formatted value such as ("0.41", "s"); a dash stands for a missing one. `big` is 28 px."""

    def __init__(self, caption: str, *, big: bool = False, **values: Any):
        super().__init__()
        self._number = label("–", "figure" if big else "section")
        self._unit = label(role="caption")
        self._caption = label(caption, "caption", **values)
        line = QHBoxLayout()
        line.setSpacing(4)
        line.addWidget(self._number, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addWidget(self._unit, 0, Qt.AlignmentFlag.AlignBaseline)
        line.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addLayout(line)
        whole.addWidget(self._caption)

    def show_value(self, number: str, unit: str = "", tone: str = "") -> None:
        """Show a number as workbench.figures formats it; `tone` is a token's name or empty."""
        language.release(self._number.setText)
        self._number.setText(number)
        self._unit.setText(unit)
        restyle(self._number, "tone", tone)
        self.setAccessibleName(f"{self._caption.text()}: {number} {unit}".strip())
