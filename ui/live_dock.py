"""The place of the Live panel at the right: a narrow handle folds it; a wide window gives it more room, a small
one none until it is asked for."""

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from ui import icons, language

WIDTH, WIDE = 332, 460
WIDE_FROM, SMALL = 1900, 1200  # pixels of the window


class LiveDock(QWidget):
    """Holds `panel`; folded, only the handle is left. `wanted` is how the user left it."""

    folded = Signal(bool)

    def __init__(self, panel: QWidget):
        super().__init__()
        self._panel = panel
        self._handle = QToolButton()
        self._handle.setObjectName("dock_handle")
        self._handle.setFixedWidth(22)
        self._handle.setIconSize(QSize(16, 16))
        self._handle.setCursor(Qt.CursorShape.PointingHandCursor)
        self._handle.clicked.connect(self.toggle)
        for setter in (self._handle.setToolTip, self._handle.setAccessibleName):
            language.bind(setter, "Show or hide the Live panel")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self._handle, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(panel)
        self._watched: QWidget | None = None
        self._small = False
        panel.setFixedWidth(WIDTH)
        self.open(True)

    @property
    def opened(self) -> bool:
        return not self._panel.isHidden()

    def open(self, opened: bool) -> None:
        """Open or fold it, as the user wants it in a window of any size."""
        self.wanted = opened
        self._show(opened)

    def toggle(self) -> None:
        self.open(not self.opened)

    def _show(self, opened: bool) -> None:
        self._panel.setVisible(opened)
        icons.bind(self._handle.setIcon, "arrow-right-s-line" if opened else "arrow-left-s-line", "muted")
        self.folded.emit(not opened)

    def showEvent(self, event) -> None:
        super().showEvent(event)
        if self._watched is not self.window():
            self._watched = self.window()
            self._watched.installEventFilter(self)
        self._fit()

    def eventFilter(self, _window: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._fit()
        return False

    def _fit(self) -> None:
        width = self.window().width()
        self._panel.setFixedWidth(WIDE if width >= WIDE_FROM else WIDTH)
        if (small := width < SMALL) != self._small:
            self._small = small
            self._show(self.wanted and not small)
