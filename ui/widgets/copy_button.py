"""A button that copies a text and says for a moment that it did."""

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QPushButton

from ui import language
from ui.widgets.button import button

COPIED_MS = 1500


def copy_button(template: str, text: Callable[[], str], *, kind: str = "quiet", icon: str = "") -> QPushButton:
    """`text` is asked at each press."""

    def copy() -> None:
        QApplication.clipboard().setText(text())
        language.bind(made.setText, "Copied")
        QTimer.singleShot(COPIED_MS, made, lambda: language.bind(made.setText, template))

    made = button(template, copy, kind=kind, icon=icon)
    return made
