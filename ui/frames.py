"""Redrawing per frame: however often the state changes, a widget is drawn 25 times a second and only while seen."""

from typing import Protocol

from PySide6.QtCore import QEvent, QObject, QTimer

FRAME_MS = 40


class Drawn(Protocol):
    """A widget that draws itself anew from its state."""

    def redraw(self) -> None: ...


class Frames(QObject):
    """Draws `widget` within a frame after `touch`, or when it is seen again."""

    def __init__(self, widget: Drawn):
        super().__init__(widget)
        self._widget = widget
        self._touched = False
        self._next = QTimer(self, interval=FRAME_MS, singleShot=True)
        self._next.timeout.connect(self._draw)
        widget.installEventFilter(self)

    @property
    def waiting(self) -> bool:
        """Whether a drawing is due."""
        return self._next.isActive()

    def touch(self) -> None:
        """The state changed."""
        self._touched = True
        if self._widget.isVisible() and not self.waiting:
            self._next.start()

    def eventFilter(self, _widget: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and self._touched:
            self._draw()
        return False

    def _draw(self) -> None:
        if self._widget.isVisible():
            self._touched = False
            self._widget.redraw()
