"""A combo box whose text gives way in its middle: the beginnings of a family's names are alike."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QComboBox, QStyle, QStyleOptionComboBox, QStylePainter


class ElidingCombo(QComboBox):
    """`seen` is what is read of the current text at the present width."""

    def __init__(self):
        super().__init__()
        self.view().setTextElideMode(Qt.TextElideMode.ElideMiddle)

    @property
    def seen(self) -> str:
        return self._option().currentText

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, option = QStylePainter(self), self._option()
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    def _option(self) -> QStyleOptionComboBox:
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        room = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        option.currentText = self.fontMetrics().elidedText(
            option.currentText, Qt.TextElideMode.ElideMiddle, room.width() - 4
        )
        return option
