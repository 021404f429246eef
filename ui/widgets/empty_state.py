"""What a page shows before it has anything: an icon, a sentence, and the ways on."""

from typing import Any

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from ui import icons
from ui.widgets.label import label


class EmptyState(QWidget):
    """Centred; the first of `actions` (made with `button`) is the likeliest."""

    def __init__(self, icon: str, template: str, hint: str = "", *actions: QPushButton, **values: Any):
        super().__init__()
        self._picture = QLabel()
        self._picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.sentence = label(template, "section", **values)
        self.hint = label(hint, "muted", wrap=True, **values)
        self.hint.setFixedWidth(440)
        self.hint.setVisible(bool(hint))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch(1)
        for action in actions:
            row.addWidget(action)
        row.addStretch(1)
        self.below = QVBoxLayout()
        whole = QVBoxLayout(self)
        whole.setSpacing(12)
        whole.addStretch(2)
        whole.addWidget(self._picture)
        for text in (self.sentence, self.hint):
            text.setAlignment(Qt.AlignmentFlag.AlignCenter)
            # Between stretches and not aligned: an aligned label is not asked how high it is once wrapped.
            line = QHBoxLayout()
            line.addStretch(1)
            line.addWidget(text)
            line.addStretch(1)
            whole.addLayout(line)
        whole.addLayout(row)
        whole.addLayout(self.below)
        whole.addStretch(3)
        icons.bind(self.set_icon, icon, "muted")

    def set_icon(self, icon) -> None:
        self._picture.setPixmap(icon.pixmap(QSize(40, 40)))
