"""The KV cache's blocks as cells of an image: one pixel a cell, enlarged when painted, so that thousands are cheap."""

import math
from dataclasses import dataclass

import numpy as np
from PySide6.QtGui import QColor, QImage

from ui import theme

SMALLEST, LARGEST = 2, 14  # edge of a cell in pixels
STATES = ("free", "cached", "held", "shared")
SHADES = 6  # free, cached, held by 1, shared by 2, 3, and 4 or more


@dataclass(frozen=True, slots=True)
class Packing:
    """How `count` blocks lie in rows of `columns` cells with an edge of `edge` pixels, `each` blocks in a cell."""

    count: int
    columns: int
    rows: int
    edge: int
    each: int = 1

    @property
    def width(self) -> int:
        return self.columns * self.edge

    @property
    def height(self) -> int:
        return self.rows * self.edge

    def blocks_at(self, x: float, y: float) -> range:
        """The blocks of the cell at this pixel; empty beside the last."""
        column, row = int(x // self.edge), int(y // self.edge)
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            return range(0)
        return self.blocks_of(row * self.columns + column)

    def blocks_of(self, cell: int) -> range:
        first = cell * self.each
        return range(first, max(first, min(first + self.each, self.count)))

    @property
    def cells(self) -> int:
        return math.ceil(self.count / self.each)

    def place(self, cell: int) -> tuple[int, int]:
        """Left and top of a cell in pixels."""
        row, column = divmod(cell, self.columns)
        return column * self.edge, row * self.edge


def packed(count: int, width: int, height: int, largest: int = LARGEST) -> Packing:
    """The largest cells with which all blocks fit; too many for the smallest share a cell, as few as can be."""
    assert count > 0 and width >= SMALLEST and height >= SMALLEST, (count, width, height)
    for edge in range(min(largest, width, height), SMALLEST - 1, -1):
        columns = min(count, width // edge)
        rows = math.ceil(count / columns)
        if rows * edge <= height:
            return Packing(count, columns, rows, edge)
    columns, rows = width // SMALLEST, height // SMALLEST
    each = math.ceil(count / (columns * rows))
    return Packing(count, columns, math.ceil(math.ceil(count / each) / columns), SMALLEST, each)


def shades(worn: theme.Tokens) -> np.ndarray:
    """Colours by shade as red, green, blue, alpha [SHADES, 4]: each stands out more from the ground than the last."""
    cached = QColor(worn.soft("kv", 0.38))
    towards = QColor(worn.text)
    kv = QColor(worn.kv)
    colours = [QColor(worn.line), cached, kv]
    colours += [_mixed(kv, towards, share) for share in (0.45, 0.65, 0.85)]
    return np.array([colour.getRgb() for colour in colours], np.uint8)


def shade_of(refs: np.ndarray, hashed: np.ndarray) -> np.ndarray:
    """The index of each block's shade [blocks]: by its reference count, and whether a free one is cached."""
    held = np.minimum(refs, 4).astype(np.int64) + 1
    return np.where(refs > 0, held, hashed.astype(np.int64))


def image(refs: np.ndarray, hashed: np.ndarray, packing: Packing, worn: theme.Tokens) -> QImage:
    """One pixel a cell; a cell of several blocks has their mean colour. Cells beside the last block are clear."""
    colours = shades(worn)[shade_of(refs, hashed)]
    if packing.each > 1:
        starts = np.arange(0, packing.count, packing.each)
        sums = np.add.reduceat(colours.astype(np.uint32), starts, axis=0)
        sizes = np.diff(np.append(starts, packing.count))[:, None]
        colours = (sums // sizes).astype(np.uint8)
    pixels = np.zeros((packing.rows * packing.columns, 4), np.uint8)
    pixels[: len(colours)] = colours
    stride = packing.columns * 4
    data = pixels.tobytes()
    # A copy: QImage does not keep the bytes that it is given.
    return QImage(data, packing.columns, packing.rows, stride, QImage.Format.Format_RGBA8888).copy()


def _mixed(under: QColor, over: QColor, share: float) -> QColor:
    pairs = zip(under.getRgb()[:3], over.getRgb()[:3], strict=True)
    return QColor(*(round(a * (1 - share) + b * share) for a, b in pairs))
