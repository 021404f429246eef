"""What the window can be told to do, as data: menu, palette, shortcuts and tests read the same table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from ui import language


@dataclass(frozen=True)
class Action:
    """`title` is a template, `shortcut` a portable key sequence or empty."""

    id: str
    title: str
    shortcut: str
    method: Callable[[], Any]


def install(window: QWidget, table: tuple[Action, ...]) -> dict[str, QAction]:
    """Give the window a QAction for each line of the table, by its id."""
    made = {}
    for line in table:
        action = QAction(window)
        action.setObjectName(line.id)
        language.bind(action.setText, line.title)
        if line.shortcut:
            action.setShortcut(QKeySequence(line.shortcut))
        action.triggered.connect(lambda _checked=False, method=line.method: method())
        window.addAction(action)
        made[line.id] = action
    return made
