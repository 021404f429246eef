"""One of the page's two model slots, to pick the one whose profile is shown."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QPushButton, QSizePolicy

from ui import language, theme
from ui.plots.kv_pages import paint_mark
from ui.plots.looks import NAMES
from workbench.words import say


class SlotTab(QPushButton):
    """The side's mark and name, the model's below; a line in the side's colour when it is the one shown."""

    def __init__(self, side: str):
        super().__init__()
        self._side = side
        self._model = ""
        self.setCheckable(True)
        self.setAutoExclusive(True)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        language.changed.connect(self._tell)
        theme.changed.connect(self.update)
        self._tell()

    def show_model(self, name: str) -> None:
        self._model = name
        self._tell()

    def sizeHint(self) -> QSize:
        return QSize(180, 52)

    def _tell(self) -> None:
        self.setAccessibleName(f"{NAMES[self._side]}: {self._model or say('no model')}")
        self.update()

    def paintEvent(self, event) -> None:
        super().paintEvent(event)
        worn = theme.tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.isChecked():
            painter.fillRect(QRectF(10, self.height() - 3, self.width() - 20, 2), QColor(getattr(worn, self._side)))
        paint_mark(painter, self._side, 18, 18)
        title = QFont(self.font())
        title.setWeight(QFont.Weight.DemiBold)
        title.setPixelSize(13)
        painter.setFont(title)
        painter.setPen(QColor(worn.text))
        left = QRectF(30, 8, self.width() - 40, 20)
        painter.drawText(left, Qt.AlignmentFlag.AlignVCenter, str(NAMES[self._side]))
        small = QFont(self.font())
        small.setPixelSize(11)
        painter.setFont(small)
        painter.setPen(QColor(worn.muted))
        model = self._model or say("no model")
        shown = QFontMetrics(small).elidedText(model, Qt.TextElideMode.ElideMiddle, int(left.width()))
        painter.drawText(left.translated(0, 18), Qt.AlignmentFlag.AlignVCenter, shown)
