"""Icons of one family (Remix), tinted with the theme's colours and again when the theme changes."""

import weakref
from collections.abc import Callable
from typing import Any

import qtawesome
import shiboken6
from PySide6.QtGui import QIcon

from ui import theme

_bound: weakref.WeakKeyDictionary[Any, dict[str, tuple[str, str]]] = weakref.WeakKeyDictionary()


def icon(name: str, colour: str = "text") -> QIcon:
    """The icon `name` (without its family's prefix) in the token `colour`; disabled in the muted one."""
    worn = theme.tokens()
    return qtawesome.icon(f"ri.{name}", color=getattr(worn, colour), color_disabled=worn.muted)


def bind(setter: Callable[[QIcon], Any], name: str, colour: str = "text") -> None:
    """Give `setter` (a bound method such as button.setIcon) the icon now and after every change of theme."""
    _bound.setdefault(setter.__self__, {})[setter.__name__] = (name, colour)
    setter(icon(name, colour))


def _tint() -> None:
    for target, held in list(_bound.items()):
        if isinstance(target, shiboken6.Object) and not shiboken6.isValid(target):
            continue
        for setter, (name, colour) in held.items():
            getattr(target, setter)(icon(name, colour))


theme.changed.connect(_tint)
