"""A button of one icon that opens a menu, filled when it opens."""

from collections.abc import Callable

from PySide6.QtWidgets import QMenu, QToolButton

from ui import icons, language
from workbench.words import Sentence


class MenuButton(QToolButton):
    """Its menu is `lines`, and `fill` is called before each opening. `name` is also its tooltip."""

    def __init__(self, name: Sentence, icon: str, fill: Callable[[], None]):
        super().__init__()
        icons.bind(self.setIcon, icon)
        for setter in (self.setToolTip, self.setAccessibleName):
            language.show(setter, name)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        self.lines = QMenu(self)
        self.lines.aboutToShow.connect(fill)
        self.setMenu(self.lines)
