"""Parts in as many columns as there is room for, so that none is cut in a narrow window."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLayout, QWidget


class Reflow(QWidget):
    """`steps` are the numbers of columns that it may have, the most first; Tab visits the parts in their order.

    `stretch` says how the columns share what is left over, by default alike.
    """

    def __init__(self, *steps: int, across: int = 8, down: int = 8, stretch: Sequence[int] = ()):
        super().__init__()
        self._steps, self._stretch = steps, stretch
        self._parts: list[QWidget] = []
        self.columns = 0
        self._grid = QGridLayout(self)
        self._grid.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)  # the least width is of the last step
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(across)
        self._grid.setVerticalSpacing(down)

    def add(self, *parts: QWidget) -> None:
        self._parts += parts
        self._place(self.columns or self._steps[0])

    def empty(self) -> None:
        """Take all parts away for good."""
        for part in self._parts:
            part.hide()
            part.deleteLater()
        self._parts = []

    def minimumSizeHint(self) -> QSize:
        return QSize(self._needed(self._steps[-1]), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:  # a part's words became longer, as in another language
            self._fit()
        return done

    def _fit(self) -> None:
        fitting = (step for step in self._steps if self._needed(step) <= self.width())
        if self._parts and (columns := next(fitting, self._steps[-1])) != self.columns:
            self._place(columns)
            # The layouts around it, which may be at work right now, must ask for the new height after this.
            QTimer.singleShot(0, self, self.updateGeometry)

    def _needed(self, columns: int) -> int:
        """The width in pixels of so many columns."""
        widths = [max(part.minimumSizeHint().width(), part.minimumWidth()) for part in self._parts]
        across = [max(widths[column::columns], default=0) for column in range(columns)]
        return sum(across) + self._grid.horizontalSpacing() * (columns - 1)

    def _place(self, columns: int) -> None:
        self.columns = columns
        for place, part in enumerate(self._parts):
            self._grid.addWidget(part, *divmod(place, columns))
        for column in range(self._steps[0]):
            share = self._stretch[column] if column < len(self._stretch) else 1
            self._grid.setColumnStretch(column, share if column < columns else 0)
