"""A bordered surface with an optional title line."""

from typing import Any

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout

from ui import language
from ui.widgets.label import label


class Card(QFrame):
    """`head` holds the title and what stands beside it; `body` is the rest."""

    def __init__(self, template: str = "", **values: Any):
        super().__init__()
        self.setObjectName("card")
        self.body = QVBoxLayout()
        self.body.setSpacing(8)
        self.head = QHBoxLayout()
        self.head.setSpacing(8)
        self.title = label(role="section")
        whole = QVBoxLayout(self)
        whole.setContentsMargins(16, 12, 16, 12)
        whole.setSpacing(8)
        if template:
            language.bind(self.title.setText, template, **values)
            self.head.addWidget(self.title)
            self.head.addStretch(1)
            whole.addLayout(self.head)
        whole.addLayout(self.body, 1)
