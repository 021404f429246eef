"""A push button with its text, name for screen readers, icon and action."""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPushButton

from ui import icons, language
from ui.widgets.label import restyle

KINDS = ("plain", "primary", "quiet", "danger")


def button(
    template: str,
    method: Callable[[], Any] | None = None,
    *,
    kind: str = "plain",
    icon: str = "",
    only_icon: bool = False,
    **values: Any,
) -> QPushButton:
    """`method` is called without arguments. With `only_icon` the text becomes the tooltip."""
    assert kind in KINDS, kind
    made = QPushButton()
    restyle(made, "kind", kind)
    made.setCursor(Qt.CursorShape.PointingHandCursor)
    language.bind(made.setAccessibleName, template, **values)
    if only_icon:
        restyle(made, "square", True)
        language.bind(made.setToolTip, template, **values)
    else:
        language.bind(made.setText, template, **values)
    if icon:
        icons.bind(made.setIcon, icon, "ground" if kind == "primary" else "text")
        made.setIconSize(QSize(16, 16))
    if method:
        made.clicked.connect(lambda _checked=False: method())
    return made
