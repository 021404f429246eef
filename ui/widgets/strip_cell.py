"""One cell of the strip of blocks × modules: what it says, and how that is painted."""

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPen

from ui import theme
from ui.widgets.error_scale import ErrorScale, ink_on, width_color

State = Literal["planned", "changing", "conflict", "working", "done", "kept", "width"]

GAP = 2  # between cells


@dataclass(frozen=True, slots=True)
class Cell:
    """One linear layer: where it stands, what is known of it, and the words for those who cannot see it.

    `column` is the layer's name within its block, `label` the short mark while it waits ("AWQ 4"),
    `db` its signal to quantization noise once done, which colours it; `figure` is what it then reads in place of that.
    A "width" cell is coloured by its `bits`; a "changing" one is wanted otherwise than a running job
    has it. `words` become text when they are asked for: there may be many cells.
    """

    name: str
    block: int
    column: str
    state: State
    label: str
    words: object
    db: float | None = None
    figure: str = ""
    bits: int | None = None


def paint_cell(painter: QPainter, place: QRect, cell: Cell, scale: ErrorScale, worn: theme.Tokens) -> None:
    """Paint `cell` at `place`, what is done in its colour on `scale`."""
    rect = place.adjusted(GAP // 2, GAP // 2, -GAP // 2, -GAP // 2)
    box = QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5)
    ink, text = worn.muted, cell.label
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if cell.state == "done" and cell.db is not None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(scale.color(cell.db))
        ink, text = scale.ink(cell.db), cell.figure or f"{cell.db:.0f}"
    elif cell.state == "width" and cell.bits is not None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(width_color(cell.bits))
        ink = ink_on(width_color(cell.bits))
    elif cell.state == "conflict":
        painter.setPen(QPen(QColor(worn.rejected), 1.5))
        ink = worn.rejected
    elif cell.state == "changing":
        painter.setPen(QPen(QColor(worn.quantized), 1, Qt.PenStyle.DashLine))
        ink = worn.quantized
    elif cell.state == "working":
        painter.setPen(QPen(QColor(worn.accent), 1.5))
    else:
        painter.setPen(QPen(QColor(worn.line), 1))
    if cell.state != "kept":  # what stays as it is has no box to be filled
        painter.drawRoundedRect(box, 2, 2)
    if cell.state == "working":
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(worn.accent))
        side = min(rect.width(), rect.height(), 14) - 6
        painter.drawRect(rect.center().x() - side // 2, rect.center().y() - side // 2, side, side)
        return
    if fitting := _fitting(text, rect.width() - 4, QFontMetrics(painter.font())):
        painter.setPen(QColor(ink))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, fitting)


def _fitting(text: str, width: int, metrics: QFontMetrics) -> str:
    """The text, else its last word, else nothing: a cut word says less than none."""
    for candidate in (text, text.rpartition(" ")[2]):
        if metrics.horizontalAdvance(candidate) <= width:
            return candidate
    return ""
