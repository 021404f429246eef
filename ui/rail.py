"""The stations in working order, at the left of the window."""

from collections.abc import Iterable
from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QToolButton, QVBoxLayout

from ui import icons, language


@dataclass(frozen=True)
class Station:
    """A page's place in the rail: its key, its word (a template) and its icon."""

    key: str
    title: str
    icon: str


class Rail(QFrame):
    """Icon and word of each station; the settings stand at the bottom."""

    picked = Signal(str)
    settings_asked = Signal()

    def __init__(self, stations: Iterable[Station]):
        super().__init__()
        self.setObjectName("rail")
        self.setFixedWidth(76)
        self._group = QButtonGroup(self)
        self._buttons: dict[str, QToolButton] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(6, 8, 6, 8)
        column.setSpacing(4)
        for station in stations:
            made = self._button(station)
            made.setCheckable(True)
            made.clicked.connect(lambda _checked=False, key=station.key: self.picked.emit(key))
            self._group.addButton(made)
            self._buttons[station.key] = made
            column.addWidget(made)
        column.addStretch(1)
        self._settings = self._button(Station("settings", "Settings", "settings-3-line"))
        self._settings.clicked.connect(self.settings_asked)
        column.addWidget(self._settings)

    def show_picked(self, key: str) -> None:
        self._buttons[key].setChecked(True)

    def _button(self, station: Station) -> QToolButton:
        made = QToolButton()
        made.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
        made.setIconSize(QSize(20, 20))
        made.setFixedSize(64, 56)
        made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        made.setCursor(Qt.CursorShape.PointingHandCursor)
        icons.bind(made.setIcon, station.icon)
        language.bind(made.setText, station.title)
        language.bind(made.setAccessibleName, station.title)
        return made
