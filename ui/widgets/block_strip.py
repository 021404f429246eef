"""Blocks × modules: one painted cell per linear layer, coloured by its error once it is quantized."""

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from ui import language, theme
from ui.widgets.error_scale import ErrorScale
from ui.widgets.strip_cell import Cell, paint_cell
from ui.widgets.strip_grid import CELL_HEIGHT, CELL_WIDTH, GUTTER, HEAD, Place, StripGrid


class BlockStrip(QWidget):
    """Rows are blocks, columns the linear layers in them. Click or arrows choose a cell, shift pins a second one.

    Signals:
        chosen(name): the cell to show
        pinned(name): the cell to show beside it; empty when unpinned
        moved(rect): where the chosen cell now lies, to be scrolled into view
        rescaled: the ends of the colour scale moved
    """

    chosen = Signal(str)
    pinned = Signal(str)
    rescaled = Signal()
    moved = Signal(QRect)

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self._scale = ErrorScale()
        self._cells: dict[Place, Cell] = {}
        self._places: dict[str, Place] = {}
        self._grid = StripGrid()
        self._at: Place | None = None
        self._pin: Place | None = None
        self.changes: tuple[int, ...] = ()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        language.bind(self.setAccessibleName, "Blocks and modules")
        theme.changed.connect(self.update)

    # -- what it shows

    def set_cells(self, cells: Iterable[Cell]) -> None:
        """Show these cells and no others; the chosen and the pinned one stay so where they still exist."""
        cells = list(cells)
        chosen, pinned = self.chosen_name, self.pinned_name
        grid = StripGrid(dict.fromkeys(cell.column for cell in cells), sorted({cell.block for cell in cells}))
        column_of = {column: index for index, column in enumerate(grid.columns)}
        row_of = {block: index for index, block in enumerate(grid.blocks)}
        self._grid = grid
        self._places = {cell.name: (row_of[cell.block], column_of[cell.column]) for cell in cells}
        self._cells = {self._places[cell.name]: cell for cell in cells}
        self._at, self._pin = self._places.get(chosen), self._places.get(pinned)
        if pinned and self._pin is None:
            self.pinned.emit("")
        self._describe()
        self._rescale()
        grid.fit(self.size())
        self.updateGeometry()
        self.update()

    def put(self, cells: Iterable[Cell]) -> None:
        """Show a new state of cells that are there; only what changed is painted again."""
        changed = [cell for cell in cells if self._cells.get(self._places[cell.name]) != cell]
        for cell in changed:
            place = self._places[cell.name]
            self._cells[place] = cell
            self.update(self._grid.rect(place))
        if changed:
            self._describe()
            self._rescale()

    def show_changes(self, blocks: tuple[int, ...]) -> None:
        """Mark that the recipe changed on the way, from each of these blocks on."""
        if blocks != self.changes:
            self.changes = blocks
            self.update()

    def choose(self, name: str, tell: bool = False) -> None:
        """Mark the cell of `name` as the chosen one; `tell` also says so to those who listen."""
        if (place := self._places.get(name)) is not None:
            self._move(place, tell)

    def unpin(self) -> None:
        """Forget the second cell."""
        self._set_pin(None)

    @property
    def scale(self) -> ErrorScale:
        return self._scale

    @property
    def chosen_name(self) -> str:
        return self._cells[self._at].name if self._at in self._cells else ""

    @property
    def pinned_name(self) -> str:
        return self._cells[self._pin].name if self._pin in self._cells else ""

    def rect_of(self, name: str) -> QRect:
        """Where the cell of `name` is painted, in this widget's coordinates."""
        return self._grid.rect(self._places[name])

    def sizeHint(self) -> QSize:
        return self._grid.size(44, 20)

    def minimumSizeHint(self) -> QSize:
        return self._grid.size(CELL_WIDTH[0], CELL_HEIGHT[0])

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._grid.fit(self.size())
        super().resizeEvent(event)

    def _place_at(self, point: QPoint) -> Place | None:
        place = self._grid.place_at(point)
        return place if place in self._cells else None

    # -- choosing

    def _describe(self) -> None:
        self.setAccessibleDescription(str(self._cells[self._at].words) if self._at is not None else "")

    def _rescale(self) -> None:
        scale = ErrorScale.holding(cell.db for cell in self._cells.values() if cell.db is not None)
        if scale != self._scale:
            self._scale = scale
            self.rescaled.emit()
            self.update()

    def _move(self, place: Place, tell: bool) -> None:
        if place not in self._cells:
            return
        for changed in (self._at, place):
            if changed is not None:
                self.update(self._grid.rect(changed).adjusted(-2, -2, 2, 2))
        self._at = place
        self._describe()
        self.moved.emit(self._grid.rect(place))
        if tell:
            self.chosen.emit(self._cells[place].name)

    def _set_pin(self, place: Place | None) -> None:
        if place == self._pin:
            place = None
        for changed in (self._pin, place):
            if changed is not None:
                self.update(self._grid.rect(changed).adjusted(-2, -2, 2, 2))
        self._pin = place
        self.pinned.emit(self.pinned_name)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = self._place_at(event.position().toPoint())
        if event.button() != Qt.MouseButton.LeftButton or place is None:
            super().mousePressEvent(event)
        elif event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._set_pin(place)
        else:
            self._move(place, tell=True)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if not self._cells:
            super().keyPressEvent(event)
            return
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._at is not None:
            if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                self._set_pin(self._at)
            else:
                self._move(self._at, tell=True)
            return
        row, column = self._at or (0, 0)
        page = max(1, len(self._grid.blocks) // 4)
        steps = {
            Qt.Key.Key_Left: (row, column - 1),
            Qt.Key.Key_Right: (row, column + 1),
            Qt.Key.Key_Up: (row - 1, column),
            Qt.Key.Key_Down: (row + 1, column),
            Qt.Key.Key_PageUp: (max(row - page, 0), column),
            Qt.Key.Key_PageDown: (min(row + page, len(self._grid.blocks) - 1), column),
            Qt.Key.Key_Home: (0, column),
            Qt.Key.Key_End: (len(self._grid.blocks) - 1, column),
        }
        if key not in steps:
            super().keyPressEvent(event)
            return
        self._move(steps[key] if self._at is not None else (0, 0), tell=True)

    def focusInEvent(self, event: QEvent) -> None:
        super().focusInEvent(event)
        if self._at is None and self._cells:
            self._move(min(self._cells), tell=False)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            place = self._place_at(event.pos())
            text = str(self._cells[place].words) if place is not None else ""
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    # -- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, worn = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        small = self.font()
        small.setPixelSize(11 if self._grid.cell.height() >= 16 else 10)
        painter.setFont(small)
        rect = event.rect()
        if rect.top() < HEAD:
            self._paint_heads(painter, rect, worn)
        columns = self._grid.columns_in(rect)
        for row in self._grid.rows_in(rect):
            painter.setPen(QColor(worn.muted))
            where = QRect(0, HEAD + row * self._grid.cell.height(), GUTTER - 8, self._grid.cell.height())
            painter.drawText(
                where, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, str(self._grid.blocks[row])
            )
            for column in columns:
                if cell := self._cells.get((row, column)):
                    paint_cell(painter, self._grid.rect((row, column)), cell, self._scale, worn)
            if self.changes and self._grid.blocks[row] >= min(self.changes):
                self._paint_change(painter, where, self._grid.blocks[row] in self.changes, worn)
        for place, style in ((self._pin, Qt.PenStyle.DashLine), (self._at, Qt.PenStyle.SolidLine)):
            if place is not None:
                painter.setPen(QPen(QColor(worn.accent), 2 if self.hasFocus() or place == self._pin else 1.5, style))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRoundedRect(self._grid.rect(place), 3, 3)

    def _paint_heads(self, painter: QPainter, shown: QRect, worn: theme.Tokens) -> None:
        metrics = QFontMetrics(painter.font())
        painter.setPen(QColor(worn.muted))
        for index in self._grid.columns_in(shown):
            rect = self._grid.rect((0, index))
            head = self._grid.columns[index].rpartition(".")[2].removesuffix("_proj")
            head = metrics.elidedText(head, Qt.TextElideMode.ElideRight, rect.width())
            painter.drawText(QRect(rect.x(), 0, rect.width(), HEAD), Qt.AlignmentFlag.AlignCenter, head)

    def _paint_change(self, painter: QPainter, row: QRect, begins: bool, worn: theme.Tokens) -> None:
        """A rule beside the rows that a changed recipe covers, with a foot where it begins."""
        rule = QRect(row.right() + 3, row.top(), 2, row.height())
        painter.fillRect(rule, QColor(worn.quantized))
        if begins:
            painter.fillRect(QRect(rule.left() - 4, row.top(), 4, 2), QColor(worn.quantized))
