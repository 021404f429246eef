"""One engine and prefill and decode apart on the same mixed load: asked for, run, and both ways' figures in a table."""

import asyncio
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from ui import language
from ui.tasks import Tasks
from ui.widgets import Card, button
from ui.widgets.label import label, restyle
from ui.widgets.worded_bar import WordedBar, stage_words
from workbench.engine import start
from workbench.engine.separation import Separation
from workbench.engine_events import EnginePhase
from workbench.events import Event, LegEvent
from workbench.measure.mixed_load import Comparison, Mix, Row, compare_separated
from workbench.progress import Progress
from workbench.settings import Settings
from workbench.words import Sentence

WIDTH = 640  # wider, the figures stand too far from their names
WAYS = {"one": Sentence("One engine"), "apart": Sentence("Apart")}


class BothWays(Card):
    """`changed` when a comparison begins or has ended. Closing the window ends one that runs."""

    changed = Signal()

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__("One engine or apart")
        self._settings, self._tasks = settings, tasks
        self._separation: Separation | None = None
        self._comparing: asyncio.Task | None = None
        self._mix = Mix()
        self.compare_button = button("Compare both ways", self.compare, icon="scales-3-line")
        self.cancel_button = button("Cancel", self.cancel, icon="stop-circle-line")
        self.head.addWidget(self.compare_button)
        self.head.addWidget(self.cancel_button)
        self.words = label(role="muted", wrap=True)
        self.progress = WordedBar("caption", wrap=True)
        inside = QWidget()
        inside.setMaximumWidth(WIDTH)
        self.table = QGridLayout(inside)
        self.table.setContentsMargins(0, 0, 0, 0)
        self.table.setHorizontalSpacing(20)
        self.table.setVerticalSpacing(6)
        self.table.setColumnStretch(0, 1)
        self.verdict = label(role="caption", wrap=True)
        self.body.addWidget(self.words)
        self.body.addWidget(self.progress)
        self.body.addWidget(inside)
        self.body.addWidget(self.verdict)
        self._cells: list[QLabel] = []
        self.progress.hide()
        self.verdict.hide()
        self.show_choice(None, False)

    @property
    def is_comparing(self) -> bool:
        return self._comparing is not None

    def show_choice(self, separation: Separation | None, running: bool) -> None:
        """Offer to compare these engines with one; `running`: others have the device now."""
        ours = separation is not None and all(leg.profile for leg in separation.legs().values())
        self._separation = separation if ours else None
        self.setVisible(ours or self.is_comparing)
        self.compare_button.setVisible(not self.is_comparing)
        self.compare_button.setEnabled(not running)
        self.cancel_button.setVisible(self.is_comparing)
        if running and not self.is_comparing:
            language.bind(self.words.setText, "Stop the engines first: each way needs the device for itself.")
        else:
            language.show(self.words.setText, self._mix.sentence)

    def compare(self) -> None:
        """Measure one way after the other."""
        if self._separation is None or self.is_comparing:
            return
        self._clear()
        self._comparing = self._tasks.start(self._compare(self._separation))
        self._comparing.add_done_callback(self._on_ended)
        self.progress.show()
        self.changed.emit()

    def cancel(self) -> None:
        """End the comparison and the engines that it started."""
        if self._comparing:
            self.cancel_button.setEnabled(False)
            self._comparing.cancel()

    def show_comparison(self, found: Comparison) -> None:
        """Put both ways' figures into the table."""
        self._clear()
        heads = (Sentence(""), WAYS["one"], WAYS["apart"], Sentence("speed-up"))
        for column, head in enumerate(heads):
            self._put(0, column, head, "caption")
        for place, row in enumerate(found.rows(), 1):
            self._add(place, row)
        language.show(self.verdict.setText, found.verdict)
        self.verdict.show()

    # -- inside

    async def _compare(self, separation: Separation) -> None:
        progress = {way: Progress() for way in WAYS}
        found = await compare_separated(separation, self._mix, self._settings, partial(self._take, progress))
        self.show_comparison(found)

    def _take(self, progress: dict[str, Progress], way: str, event: Event) -> None:
        progress[way].apply(event)
        own = event.event if isinstance(event, LegEvent) else event
        if isinstance(own, EnginePhase):
            self.progress.show_progress(str(WAYS[way]), str(start.NAMES[own.name]), share=None, left_s=None)
        elif progress[way].stage and progress[way].total:
            told = (str(WAYS[way]), stage_words(progress[way].stage))
            self.progress.show_progress(*told, share=progress[way].share, left_s=progress[way].left_s())

    def _on_ended(self, _task: asyncio.Task) -> None:
        self._comparing = None
        self.progress.hide()
        self.cancel_button.setEnabled(True)
        self.changed.emit()

    def _add(self, place: int, row: Row) -> None:
        self._put(place, 0, row.label, "muted")
        for column, text in enumerate(row.texts, 1):
            cell = self._put(place, column, text, "body")
            if column == len(row.texts) and row.speedup is not None:
                restyle(cell, "tone", "accepted" if row.speedup >= 1 else "rejected")

    def _put(self, row: int, column: int, text: Sentence | str, role: str) -> QLabel:
        cell = label(role=role, wrap=column == 0)
        language.show(cell.setText, text)
        side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
        cell.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
        self.table.addWidget(cell, row, column)
        self._cells.append(cell)
        return cell

    def _clear(self) -> None:
        for cell in self._cells:
            self.table.removeWidget(cell)
            cell.hide()
            cell.deleteLater()
        self._cells.clear()
        self.verdict.hide()
