"""A titled part that opens and closes."""

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from ui import language
from ui.widgets.elided import Elided
from workbench.words import Sentence


class Fold(QWidget):
    """`body` is what folds; `summary` beside the title says in short what is inside."""

    toggled = Signal(bool)

    def __init__(self, template: str, *, opened: bool = True, **values: Any):
        super().__init__()
        self._handle = QToolButton()
        self._handle.setObjectName("fold")
        self._handle.setCheckable(True)
        self._handle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._handle.setAutoRaise(True)
        language.bind(self._handle.setText, template, **values)
        language.bind(self._handle.setAccessibleName, template, **values)
        self.summary = Elided("caption")
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self._handle)
        top.addWidget(self.summary, 1)
        self._inside = QWidget()
        self.body = QVBoxLayout(self._inside)
        self.body.setContentsMargins(20, 0, 0, 8)
        self.body.setSpacing(8)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        whole.addLayout(top)
        whole.addWidget(self._inside)
        self._handle.toggled.connect(self._on_toggled)
        self._handle.setChecked(opened)
        self._on_toggled(opened)

    @property
    def opened(self) -> bool:
        return self._handle.isChecked()

    def open(self, opened: bool = True) -> None:
        self._handle.setChecked(opened)

    def summarize(self, text: Sentence | str) -> None:
        language.show(self.summary.show_text, text)

    def _on_toggled(self, opened: bool) -> None:
        self._handle.setArrowType(Qt.ArrowType.DownArrow if opened else Qt.ArrowType.RightArrow)
        self._inside.setVisible(opened)
        self.toggled.emit(opened)
