"""Widgets as a picture: drawn off-screen at twice their size, with a line that says what it shows."""

from PySide6.QtCore import QBuffer, QIODevice, QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QImage, QPainter
from PySide6.QtWidgets import QWidget

from ui import theme
from ui.plots.kv_pages import paint_mark

SCALE = 2
EDGE = 16
LINE = 20


def picture(widget: QWidget, title: str, sides: dict[str, str]) -> QImage:
    """The widget as it stands, below `title` and a line for each side with its name."""
    if not widget.isVisible():
        _lay_out(widget)
    worn = theme.tokens()
    head = EDGE + LINE * (1 + len(sides)) + EDGE // 2
    size = widget.size()
    width, height = size.width() + 2 * EDGE, head + size.height() + EDGE
    made = QImage(width * SCALE, height * SCALE, QImage.Format.Format_RGB32)
    made.setDevicePixelRatio(SCALE)
    made.fill(QColor(worn.surface))
    painter = QPainter(made)
    font = QFont(widget.font())
    font.setPixelSize(13)
    painter.setFont(font)
    left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
    painter.setPen(QColor(worn.muted))
    painter.drawText(QRectF(EDGE, EDGE, width - 2 * EDGE, LINE), left, title)
    for row, (side, name) in enumerate(sides.items(), 1):
        top = EDGE + row * LINE
        paint_mark(painter, side, EDGE + 5, top + LINE / 2)
        painter.setPen(QColor(worn.text))
        painter.drawText(QRectF(EDGE + 16, top, width - 2 * EDGE - 16, LINE), left, name)
    widget.render(painter, QPoint(EDGE, head), renderFlags=QWidget.RenderFlag.DrawChildren)
    painter.end()
    return made


def _lay_out(widget: QWidget) -> None:
    """A hidden widget has the size of when it was last seen, whatever it holds now: as high as that needs."""
    for within in (*reversed(widget.findChildren(QWidget)), widget):  # the height of a part counts in that of the whole
        if layout := within.layout():
            layout.invalidate()
            layout.activate()
    widget.resize(widget.width(), max(widget.sizeHint().height(), widget.minimumSizeHint().height()))


def png(image: QImage) -> bytes:
    """The picture's file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    if not image.save(buffer, "PNG"):
        raise RuntimeError(f"no PNG of {image.width()} × {image.height()} pixels")
    return bytes(buffer.data())
