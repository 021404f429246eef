"""What the engine's last steps computed: prompt tokens upwards, generated tokens downwards, a column a step.

Each half has a scale of its own: a step may hold a thousand prompt tokens and two generated ones.
"""

from collections.abc import Reversible
from itertools import islice

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui import language, theme
from ui.plots.kv_pages import MARK, name_width, paint_name
from workbench import figures
from workbench.words import say

HEIGHT = 64
LEFT = 40  # as wide as the plots' axis
BAR = 2


class StepBars(QWidget):
    """The newest step at the right; `capacity` steps have room."""

    def __init__(self, side: str):
        super().__init__()
        self._side = side
        self._prefill = self._decode = np.zeros(0)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(HEIGHT)
        theme.changed.connect(self.update)
        language.changed.connect(self._tell)
        self._tell()

    @property
    def capacity(self) -> int:
        return max(1, (self.width() - self._start) // BAR)

    @property
    def _start(self) -> int:
        return max(LEFT, name_width(self._side, self))

    def show_steps(self, prefill: Reversible[int], decode: Reversible[int]) -> None:
        """Tokens of each step, oldest first; the last ones that have room are shown."""
        prefill, decode = self._last(prefill), self._last(decode)
        if not (np.array_equal(prefill, self._prefill) and np.array_equal(decode, self._decode)):
            self._prefill, self._decode = prefill, decode
            self._tell()

    @property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        return self._prefill, self._decode

    def sizeHint(self) -> QSize:
        return QSize(200, HEIGHT)

    def _last(self, tokens: Reversible[int]) -> np.ndarray:
        return np.array(list(islice(reversed(tokens), self.capacity))[::-1], float)

    def _tell(self) -> None:
        values = {"count": len(self._prefill), "prefill": _most(self._prefill), "decode": _most(self._decode)}
        self.setAccessibleName(
            say(
                "The last {count} {count:step|steps}: at most {prefill} prefill and {decode} decode tokens in one",
                **values,
            )
        )
        self.update()

    def paintEvent(self, event) -> None:
        worn, painter = theme.tokens(), QPainter(self)
        font = QFont(self.font())
        font.setPixelSize(11)
        painter.setFont(font)
        middle = HEIGHT // 2
        halves = ((self._prefill, worn.prefill, 0, -1), (self._decode, worn.decode, middle + 1, 1))
        for tokens, colour, top, direction in halves:
            painter.setPen(QColor(worn.muted))
            where = QRectF(MARK + 2, top, LEFT - MARK - 6, middle - 1)
            edge = Qt.AlignmentFlag.AlignTop if direction < 0 else Qt.AlignmentFlag.AlignBottom
            painter.drawText(where, edge | Qt.AlignmentFlag.AlignRight, _most(tokens))
            highest = float(tokens.max()) if tokens.size else 0.0
            left = self.width() - len(tokens) * BAR
            for index, value in enumerate(tokens):
                if value > 0:
                    height = max(1.0, value / highest * (middle - 2))
                    y = middle - height if direction < 0 else middle + 1
                    painter.fillRect(QRectF(left + index * BAR, y, BAR, height), QColor(colour))
        painter.fillRect(QRectF(self._start, middle, self.width() - self._start, 1), QColor(worn.line))
        paint_name(painter, self._side, middle, self)


def _most(tokens: np.ndarray) -> str:
    return figures.count(float(tokens.max())) if tokens.size else figures.DASH
