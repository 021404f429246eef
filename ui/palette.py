"""Ctrl+K: everything the window can do, found by typing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyledItemDelegate,
    QVBoxLayout,
    QWidget,
)

from ui import language, theme


@dataclass(frozen=True)
class Choice:
    """One line: its text as shown, its English words to find it by too, keys to show, and what it does."""

    text: str
    english: str
    shortcut: str
    method: Callable[[], Any]


ROW = 32
EDGES = 76  # what stands around the list: the entry and the margins


class Palette(QFrame):
    """Lies over the window while open; Escape or a click elsewhere closes it."""

    def __init__(self, window: QWidget, choices: Callable[[], Iterable[Choice]]):
        super().__init__(window)
        self.setObjectName("palette")
        self._choices = choices
        self._before: QWidget | None = None
        self.entry = QLineEdit()
        language.bind(self.entry.setPlaceholderText, "What do you want to do?")
        language.bind(self.entry.setAccessibleName, "What do you want to do?")
        self.list = QListWidget()
        self.list.setItemDelegate(_Line(self.list))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        language.bind(self.list.setAccessibleName, "Actions")
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 8, 8, 8)
        column.addWidget(self.entry)
        column.addWidget(self.list)
        self.entry.textChanged.connect(self._filter)
        self.entry.returnPressed.connect(self._do)
        self.list.itemClicked.connect(lambda _item: self._do())
        self.entry.installEventFilter(self)
        self.hide()

    def open(self) -> None:
        self._before = self.window().focusWidget()
        self.entry.clear()
        self._filter("")
        self.show()
        self.raise_()
        self.entry.setFocus(Qt.FocusReason.PopupFocusReason)

    def place(self) -> None:
        """Lie in the middle of the window, as high as the choices need."""
        window = self.parentWidget().size()
        width, rows = min(560, window.width() - 48), max(1, self.list.count())
        self.setGeometry((window.width() - width) // 2, 72, width, min(window.height() - 120, EDGES + rows * ROW))

    def close_up(self) -> None:
        if self.isVisible():
            self.hide()
            if self._before is not None and self._before.isVisible():
                self._before.setFocus()

    def eventFilter(self, _watched, event) -> bool:
        if event.type() == QEvent.Type.KeyPress:
            steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: 8, Qt.Key.Key_PageUp: -8}
            if event.key() in steps and self.list.count():
                row = self.list.currentRow() + steps[Qt.Key(event.key())]
                self.list.setCurrentRow(max(0, min(self.list.count() - 1, row)))
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.close_up()
                return True
        if event.type() == QEvent.Type.FocusOut and event.reason() != Qt.FocusReason.ActiveWindowFocusReason:
            self.hide()
        return False

    def _filter(self, typed: str) -> None:
        self.list.clear()
        for choice in self._choices():
            if _matches(typed, f"{choice.text} {choice.english}"):
                item = QListWidgetItem(choice.text)
                item.setData(Qt.ItemDataRole.UserRole, choice)
                self.list.addItem(item)
        self.list.setCurrentRow(0)
        self.place()

    def _do(self) -> None:
        if item := self.list.currentItem():
            choice = item.data(Qt.ItemDataRole.UserRole)
            self.close_up()
            choice.method()


class _Line(QStyledItemDelegate):
    """The keys of an action stand muted at the right of its line."""

    def sizeHint(self, option, index) -> QSize:
        return QSize(super().sizeHint(option, index).width(), ROW)

    def paint(self, painter, option, index) -> None:
        super().paint(painter, option, index)
        painter.setPen(QColor(theme.tokens().muted))
        place = option.rect.adjusted(0, 0, -12, 0)
        keys = index.data(Qt.ItemDataRole.UserRole).shortcut
        painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, keys)


def _matches(typed: str, text: str) -> bool:
    """Whether every typed word occurs in the text."""
    text = text.casefold()
    return all(word in text for word in typed.casefold().split())
