"""The map of one engine core's blocks with its legend, and the same large in a window of its own."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from ui import language, theme
from ui.plots.block_view import BlockView, legend
from ui.plots.looks import leg_word, side_of
from ui.widgets import label
from ui.widgets.label import restyle
from ui.widgets.side_line import SideMark
from workbench import figures
from workbench.core_events import BlockMap
from workbench.measure import blocks, series
from workbench.words import Sentence

SIDES = {"original": Sentence("original"), "quantized": Sentence("quantized")}


class BlockPart(QWidget):
    """`show_map(map)` draws it here, and in the large window while that is open."""

    def __init__(self, key: str, rank: int):
        super().__init__()
        self._key, self._rank = key, rank
        self._map: BlockMap | None = None
        self.large: LargeMap | None = None
        self.view = BlockView()
        self.view.opened.connect(self.open)
        self.legend = label(role="caption", wrap=True)
        self.legend.setTextFormat(Qt.TextFormat.RichText)
        head = QHBoxLayout()
        head.setSpacing(6)
        head.addWidget(SideMark(side_of(key)), 0, Qt.AlignmentFlag.AlignTop)
        if leg := leg_word(key):
            name = label(role="caption")
            language.show(name.setText, leg)
            restyle(name, "tone", side_of(key))
            head.addWidget(name, 0, Qt.AlignmentFlag.AlignTop)
        head.addWidget(self.legend, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.view)
        column.addLayout(head)
        for signal in (theme.changed, language.changed):
            signal.connect(self._draw)

    def show_map(self, map_: BlockMap) -> None:
        if map_ is not self._map:
            self._map = map_
            self._draw()

    def open(self) -> None:
        """Show it large; it goes on living there."""
        if self.large is None:
            self.large = LargeMap(self.window(), self.title)
            self.large.finished.connect(self._on_closed)
        self._draw()
        self.large.show()
        self.large.activateWindow()

    @property
    def title(self) -> Sentence:
        values = {"side": SIDES[side_of(self._key)], "leg": leg_word(self._key), "rank": self._rank}
        if values["leg"]:
            return Sentence("KV cache blocks: {side}, {leg}", values)
        if self._rank:
            return Sentence("KV cache blocks: {side}, core {rank}", values)
        return Sentence("KV cache blocks: {side}", values)

    def _draw(self) -> None:
        if self._map is None:
            return
        held, hashed = series.blocks(self._map)
        counts = blocks.counts(held, hashed)
        self.view.show_blocks(held, hashed)
        self.legend.setText(legend(counts))
        if self.large is not None:
            self.large.view.show_blocks(held, hashed)
            self.large.legend.setText(legend(counts))
            self.large.show_size(self._map)

    def _on_closed(self) -> None:
        if self.large is not None:
            self.large.deleteLater()
            self.large = None
        self.view.setFocus()


class LargeMap(QDialog):
    """All blocks as large as the window; what is under the pointer or the cursor stands below."""

    def __init__(self, parent: QWidget, title: Sentence):
        super().__init__(parent)
        language.show(self.setWindowTitle, title)
        self.view = BlockView(None)
        self.legend = label()
        self.legend.setTextFormat(Qt.TextFormat.RichText)
        self.amount = label(role="caption")
        self.pointed = label(role="caption")
        self.view.pointed.connect(lambda words: language.show(self.pointed.setText, words))
        top = QHBoxLayout()
        top.addWidget(self.legend, 1)
        top.addWidget(self.amount)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addLayout(top)
        column.addWidget(self.view, 1)
        column.addWidget(self.pointed)
        self.pointed.setMinimumHeight(self.pointed.fontMetrics().height())
        self.resize(960, 640)
        restyle(self.pointed, "tone", "muted")

    def show_size(self, map_: BlockMap) -> None:
        """How many blocks there are and what one holds."""
        values = {"count": figures.count(map_.total - 1), "size": map_.block_size or figures.DASH}
        language.show(self.amount.setText, Sentence("{count} {count:block|blocks} of {size} tokens", values))
