"""A line of text in one of the window's roles."""

from typing import Any

from PySide6.QtWidgets import QLabel, QWidget

from ui import language

ROLES = ("body", "muted", "caption", "section", "page", "figure", "mono")


def label(template: str = "", role: str = "body", *, wrap: bool = False, **values: Any) -> QLabel:
    """A label with the sentence bound to it; without a template it is empty. Roles are in `ROLES`."""
    made = QLabel()
    restyle(made, "role", role)
    made.setWordWrap(wrap)
    if template:
        language.bind(made.setText, template, **values)
    return made


def restyle(widget: QWidget, name: str, value: str | bool) -> None:
    """Set a property that the style sheet looks at and have the widget dressed anew."""
    if widget.property(name) == value:
        return
    widget.setProperty(name, value)
    widget.style().unpolish(widget)
    widget.style().polish(widget)
