"""Every way to draft for a model as a list: each with its verdict, the speed it promises, and the reason."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QPainter
from PySide6.QtWidgets import QListWidget, QListWidgetItem, QStyle, QStyledItemDelegate

from ui import language, theme
from workbench import figures
from workbench.engine.drafts import MARKS, Candidate
from workbench.engine.speculation import NAMES
from workbench.words import Sentence, say

ROW = 44
MOST_ROWS = 5  # more scroll
TONES = {"fits": "accepted", "adapt": "text", "poor": "muted", "refused": "rejected"}
VERDICTS = {
    "fits": Sentence("can draft"), "adapt": Sentence("needs a copy"), "poor": Sentence("will not pay"),
    "refused": Sentence("cannot draft"),
}  # fmt: skip


METHODS = NAMES | {"draft_model": Sentence("draft model"), "suffix": Sentence("suffix")}


class DraftList(QListWidget):
    """The first row drafts nothing. `picked` tells that the user chose another row."""

    picked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("bare")
        self.setItemDelegate(_Line(self))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QListWidget.ScrollMode.ScrollPerPixel)
        language.bind(self.setAccessibleName, "Drafting")
        self._candidates: list[Candidate | None] = []
        self.show_candidates([])
        self.currentRowChanged.connect(lambda _row: self.picked.emit())
        language.changed.connect(self._speak)
        theme.changed.connect(self.viewport().update)

    @property
    def chosen(self) -> Candidate | None:
        """The chosen way; None drafts nothing."""
        row = self.currentRow()
        return self._candidates[row] if 0 <= row < len(self._candidates) else None

    def show_candidates(self, candidates: Sequence[Candidate]) -> None:
        """List these; what was chosen stays so, with what was last known of it where it is not among them."""
        kept = self.chosen
        if kept and not any(_same(kept, each) for each in candidates):
            candidates = [*candidates, kept]
        self.blockSignals(True)
        self.clear()
        self._candidates = [None, *candidates]
        for candidate in self._candidates:
            item = QListWidgetItem()
            item.setData(Qt.ItemDataRole.UserRole, candidate)
            self.addItem(item)
        self._speak()
        self.setCurrentRow(next((row for row, each in enumerate(self._candidates) if _same(kept, each)), 0))
        self.setFixedHeight(min(len(self._candidates), MOST_ROWS) * ROW + 2 * self.frameWidth())
        self.blockSignals(False)

    def choose(self, method: str | None, folder: Path | None = None) -> None:
        """Make a way the current one, by its folder or else its method; one that is not listed is added."""
        wanted = Candidate(folder.name if folder else NAMES[method], method, folder, ()) if method else None
        if not any(_same(wanted, each) for each in self._candidates):
            self.show_candidates([*self._candidates[1:], wanted])
        self.setCurrentRow(next(row for row, each in enumerate(self._candidates) if _same(wanted, each)))

    def _speak(self) -> None:
        for row, candidate in enumerate(self._candidates):
            item = self.item(row)
            text, told = title(candidate), " ".join(map(str, reasons(candidate)))
            item.setText(text)
            item.setToolTip("" if candidate is None else "\n".join(map(str, reasons(candidate))))
            verdict = str(VERDICTS[candidate.verdict]) if candidate else ""
            spoken = ". ".join(part for part in (text, verdict, told) if part)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, spoken)


def title(candidate: Candidate | None) -> str:
    if candidate is None:
        return say("No drafting")
    return candidate.name if candidate.folder else str(METHODS[candidate.method])


def reasons(candidate: Candidate | None) -> list[Sentence]:
    """Those of the verdict first; of one that cannot draft only why."""
    if candidate is None:
        return [Sentence("Every token by a step of its own.")]
    return [reason.sentence for reason in candidate.ordered]


def _same(one: Candidate | None, other: Candidate | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.folder or other.folder:
        return one.folder == other.folder
    return one.method == other.method


class _Line(QStyledItemDelegate):
    """Mark, name and promise; below them the method and the first reason."""

    def sizeHint(self, option, index) -> QSize:
        return QSize(0, ROW)

    def paint(self, painter: QPainter, option, index) -> None:
        candidate, worn = index.data(Qt.ItemDataRole.UserRole), theme.tokens()
        picked = bool(option.state & QStyle.StateFlag.State_Selected)
        enabled = bool(option.state & QStyle.StateFlag.State_Enabled)
        muted = QColor(worn.muted)
        painter.save()
        if picked:
            painter.fillRect(option.rect, QColor(worn.picked))
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QColor(worn.accent))
            painter.drawRect(option.rect.adjusted(0, 0, -1, -1))
        inside = option.rect.adjusted(8, 4, -8, -4)
        half = inside.height() // 2
        upper = QRect(inside.left() + 22, inside.top(), inside.width() - 22, half)
        lower = upper.translated(0, half)
        verdict = candidate.verdict if candidate else None
        if verdict:
            painter.setPen(QColor(getattr(worn, TONES[verdict])) if enabled else muted)
            painter.drawText(QRect(inside.left(), upper.top(), 18, half), Qt.AlignmentFlag.AlignCenter, MARKS[verdict])
        promise = figures.ratio(candidate.speedup) if candidate and candidate.speedup and verdict != "refused" else ""
        painter.setPen(muted)
        painter.drawText(upper, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, promise)
        room = upper.width() - painter.fontMetrics().horizontalAdvance(promise) - 12
        painter.setPen(QColor(worn.text) if enabled and verdict != "refused" else muted)
        name = painter.fontMetrics().elidedText(title(candidate), Qt.TextElideMode.ElideMiddle, room)
        painter.drawText(upper, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, name)
        small = QFont(option.font)
        small.setPixelSize(11)
        painter.setFont(small)
        painter.setPen(muted)
        told = str(next(iter(reasons(candidate)), Sentence("not looked at yet")))
        if candidate and candidate.folder:
            told = f"{METHODS.get(candidate.method, candidate.method)} · {told}"
        told = painter.fontMetrics().elidedText(told, Qt.TextElideMode.ElideRight, lower.width())
        painter.drawText(lower, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, told)
        painter.restore()
