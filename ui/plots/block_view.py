"""Which block of the KV cache is free, kept for reuse, held or shared: a cell a block, with tooltip and keyboard."""

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QImage, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from ui import language, theme
from ui.plots import block_map
from workbench import figures
from workbench.measure import blocks
from workbench.words import Sentence, say

HEIGHT = 160  # at most, in the panel
LARGE = 40  # edge of a cell where the map has a window of its own
FIRST = 1  # block 0 is vLLM's own and not shown


class BlockView(QWidget):
    """The map of one engine. Arrows walk over the cells; Return or a click opens it large.

    Signals: `opened` when the user wants it large, `pointed(sentence)` with the words for the cell under the pointer
    or cursor, "" for none.
    """

    opened = Signal()
    pointed = Signal(object)

    def __init__(self, height: int | None = HEIGHT):
        super().__init__()
        self._most = height
        self._refs, self._hashed = np.zeros(0, np.uint16), np.zeros(0, bool)
        self._packing: block_map.Packing | None = None
        self._image: QImage | None = None
        self._cell: int | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        upright = QSizePolicy.Policy.Expanding if height is None else QSizePolicy.Policy.Fixed
        self.setSizePolicy(QSizePolicy.Policy.Expanding, upright)
        language.bind(self.setAccessibleName, "KV cache blocks")
        theme.changed.connect(self._repaint)
        language.changed.connect(self._tell)
        if height is not None:
            self.setCursor(Qt.CursorShape.PointingHandCursor)

    def show_blocks(self, refs: np.ndarray, hashed: np.ndarray) -> None:
        """Reference counts [blocks] and whether each is known by its content [blocks]; the same again costs nothing."""
        if np.array_equal(refs, self._refs) and np.array_equal(hashed, self._hashed):
            return
        grown = len(refs) != len(self._refs)
        self._refs, self._hashed = refs, hashed
        if grown:
            self._cell = None
            self._pack()
        self._repaint()
        self._tell()

    @property
    def packing(self) -> block_map.Packing | None:
        return self._packing

    def words(self, cell: int | None) -> Sentence | str:
        """What the cell's blocks are."""
        ids = self._packing.blocks_of(cell) if self._packing and cell is not None else range(0)
        if not ids:
            return ""
        if len(ids) == 1:
            return _of_one(ids[0], int(self._refs[ids[0]]), bool(self._hashed[ids[0]]))
        return _of_several(ids, blocks.counts(self._refs[ids.start : ids.stop], self._hashed[ids.start : ids.stop]))

    def sizeHint(self) -> QSize:
        return QSize(280, self._packing.height if self._packing and self._most is not None else HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.sizeHint().height() if self._most is not None else 120)

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self._pack()

    def paintEvent(self, event) -> None:
        if self._packing is None:
            return
        worn, packing = theme.tokens(), self._packing
        if self._image is None:
            self._image = block_map.image(self._refs, self._hashed, packing, worn)
        painter = QPainter(self)
        painter.drawImage(QRect(0, 0, packing.width, packing.height), self._image)
        if packing.edge > 3:
            painter.setPen(QPen(QColor(worn.surface), 1))
            for column in range(1, packing.columns + 1):
                painter.drawLine(column * packing.edge - 1, 0, column * packing.edge - 1, packing.height)
            for row in range(1, packing.rows + 1):
                painter.drawLine(0, row * packing.edge - 1, packing.width, row * packing.edge - 1)
        if self._cell is not None and self.hasFocus():
            left, top = packing.place(self._cell)
            painter.setPen(QPen(QColor(worn.accent), 2))
            painter.drawRect(QRectF(left - 1, top - 1, packing.edge + 1, packing.edge + 1))
        elif self.hasFocus():
            painter.setPen(QPen(QColor(worn.accent), 2))
            painter.drawRect(self.rect().adjusted(1, 1, -1, -1))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.pointed.emit(self.words(self._cell_at(event.position().toPoint())))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.opened.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.opened.emit()
            return
        packing = self._packing
        last = packing.cells - 1 if packing else 0
        across = packing.columns if packing else 1
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Up: -across, Qt.Key.Key_Down: across,
                 Qt.Key.Key_Home: -last, Qt.Key.Key_End: last}  # fmt: skip
        if packing is None or event.key() not in steps:
            super().keyPressEvent(event)
            return
        if self._cell is None:
            self._cell = last if event.key() == Qt.Key.Key_End else 0
        else:
            self._cell = max(0, min(last, self._cell + steps[Qt.Key(event.key())]))
        self._tell()

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), str(self.words(self._cell_at(event.pos()))), self)
            return True
        return super().event(event)

    def _cell_at(self, point: QPoint) -> int | None:
        ids = self._packing.blocks_at(point.x(), point.y()) if self._packing else range(0)
        return ids.start // self._packing.each if ids else None

    def _pack(self) -> None:
        room, largest = (self.height(), LARGE) if self._most is None else (self._most, block_map.LARGEST)
        if len(self._refs) and self.width() > 8 and room > 8:
            self._packing = block_map.packed(len(self._refs), self.width(), room, largest)
            if self._cell is not None:
                self._cell = min(self._cell, self._packing.cells - 1)
        else:
            self._packing = None
        if self._most is not None:
            self.updateGeometry()
        self._repaint()

    def _repaint(self) -> None:
        self._image = None
        self.update()

    def _tell(self) -> None:
        """For those who cannot see it: the cell at the cursor, else all blocks."""
        told = self.words(self._cell)
        if self._cell is not None:
            self.pointed.emit(told)
        everything = _of_all(blocks.counts(self._refs, self._hashed)) if len(self._refs) else ""
        self.setAccessibleDescription(str(told or everything))
        self.update()


def _of_one(block: int, refs: int, hashed: bool) -> Sentence:
    values = {"block": figures.count(FIRST + block), "held": refs}
    if refs > 1:
        return Sentence("Block {block}: shared by {held} requests", values)
    if refs:
        return Sentence("Block {block}: held by 1 request", values)
    if hashed:
        return Sentence("Block {block}: free, its tokens are kept for reuse", values)
    return Sentence("Block {block}: free", values)


def _of_several(ids: range, counts: blocks.Counts) -> Sentence:
    span = {"first": figures.count(FIRST + ids[0]), "last": figures.count(FIRST + ids[-1])}
    return Sentence(
        "Blocks {first} to {last}: {free} free, {cached} kept for reuse, {held} held, {shared} shared",
        span | counts.values,
    )


def _of_all(counts: blocks.Counts) -> Sentence:
    return Sentence("{free} free, {cached} kept for reuse, {held} held, {shared} shared", counts.values)


def legend(counts: blocks.Counts) -> str:
    """The states with their colours and how many blocks have each, as rich text."""
    free, cached, held, *shared = (_square(shade) for shade in block_map.shades(theme.tokens()))
    each = (
        (free, say("free"), counts.free),
        (cached, say("kept for reuse"), counts.cached),
        (held, say("held"), counts.held),
        ("".join(shared), say("shared"), counts.shared),
    )
    return " &nbsp; ".join(f"{mark}{_unbroken(f' {name} {figures.count(count)}')}" for mark, name, count in each)


def _unbroken(text: str) -> str:
    """The text with nothing in it where a line could end: Chinese has no spaces and may break anywhere."""
    return "".join(f"\u2060{letter}" for letter in text.replace(" ", "\u00a0"))


def _square(shade: np.ndarray) -> str:
    return f'<span style="color:{QColor(*(int(part) for part in shade)).name()}">■</span>'
