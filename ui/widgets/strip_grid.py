"""Where the cells of a strip lie: rows are blocks, columns the layers in them, a gap between parent modules."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from PySide6.QtCore import QPoint, QRect, QSize

HEAD = 20
GUTTER = 34
GROUP_GAP = 12
MARGIN = 4
CELL_HEIGHT = (12, 34)
CELL_WIDTH = (14, 72)

Place = tuple[int, int]  # row, column


class StripGrid:
    """`columns` are the layers' names within a block, `blocks` the numbers of the rows."""

    def __init__(self, columns: Iterable[str] = (), blocks: Iterable[int] = ()):
        self.columns = list(columns)
        self.blocks = list(blocks)
        self.cell = QSize(CELL_WIDTH[0], CELL_HEIGHT[0])
        self._lefts: list[int] = []

    def fit(self, size: QSize) -> None:
        """Spread the cells over `size`, between their smallest and largest."""
        columns, rows = max(len(self.columns), 1), max(len(self.blocks), 1)
        width = (size.width() - self.size(0, 0).width()) // columns
        height = (size.height() - HEAD - MARGIN) // rows
        self.cell = QSize(_between(width, CELL_WIDTH), _between(height, CELL_HEIGHT))
        self._lefts, left = [], GUTTER
        for index, name in enumerate(self.columns):
            if index and _parent(name) != _parent(self.columns[index - 1]):
                left += GROUP_GAP
            self._lefts.append(left)
            left += self.cell.width()

    def size(self, cell_width: int, cell_height: int) -> QSize:
        """What the whole takes with cells of this size."""
        steps = sum(one != other for one, other in pairwise(map(_parent, self.columns)))
        width = GUTTER + MARGIN + steps * GROUP_GAP + len(self.columns) * cell_width
        return QSize(width, HEAD + MARGIN + len(self.blocks) * cell_height)

    def rect(self, place: Place) -> QRect:
        row, column = place
        return QRect(QPoint(self._lefts[column], HEAD + row * self.cell.height()), self.cell)

    def rows_in(self, rect: QRect) -> range:
        """The rows that this part of the widget shows."""
        first = (rect.top() - HEAD - 2) // self.cell.height()
        last = (rect.bottom() - HEAD + 2) // self.cell.height()
        return range(max(first, 0), min(last + 1, len(self.blocks)))

    def columns_in(self, rect: QRect) -> range:
        """The columns that this part of the widget shows; there may be hundreds."""
        first = bisect_right(self._lefts, rect.left() - 2 - self.cell.width())
        return range(first, bisect_right(self._lefts, rect.right() + 2))

    def place_at(self, point: QPoint) -> Place | None:
        """The cell under a point, whether one is there or not."""
        for row in self.rows_in(QRect(point, QSize(1, 1))):
            for column in range(len(self.columns)):
                if self.rect((row, column)).contains(point):
                    return row, column
        return None


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _between(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])
