"""The ground under code in a transcript, with room around it that a text block's own background has not."""

from PySide6.QtCore import QPoint, QRectF
from PySide6.QtGui import QColor, QPainter, QTextBlock, QTextFormat
from PySide6.QtWidgets import QTextEdit

from ui import theme

IS_CODE = QTextFormat.Property.UserProperty + 1
BEGINS = QTextFormat.Property.UserProperty + 2  # two codes may follow each other without a block between
PADDING_PX = 10
ABOVE_PX, BELOW_PX = 6, 8


def paint(view: QTextEdit) -> None:
    """Fill the grounds of the code in view; to be called before the text is painted."""
    document, viewport = view.document(), view.viewport()
    layout, top = document.documentLayout(), view.verticalScrollBar().value()
    margin, height = document.documentMargin(), viewport.height()
    painter: QPainter | None = None
    block = view.cursorForPosition(QPoint(0, 0)).block()
    while block.isValid():
        rect = layout.blockBoundingRect(block).translated(0, -top)
        if rect.top() - ABOVE_PX > height:
            break
        if is_code(block):
            above = ABOVE_PX if _begins(block) or not is_code(block.previous()) else 0
            below = BELOW_PX if _begins(block.next()) or not is_code(block.next()) else 0
            if painter is None:
                painter = QPainter(viewport)
                ground = QColor(theme.tokens().soft("text", 0.07))
            last = rect.top() + block.layout().boundingRect().height()
            painter.fillRect(
                QRectF(margin, rect.top() - above, viewport.width() - 2 * margin, last - rect.top() + above + below),
                ground,
            )
        block = block.next()
    if painter is not None:
        painter.end()


def is_code(block: QTextBlock) -> bool:
    return block.isValid() and block.blockFormat().boolProperty(IS_CODE)


def _begins(block: QTextBlock) -> bool:
    return block.isValid() and block.blockFormat().boolProperty(BEGINS)
