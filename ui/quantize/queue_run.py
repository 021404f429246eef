"""The kept queue in the window: who waits, and the work through it."""

import asyncio
from pathlib import Path

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from ui.log_drawer import Status
from ui.tasks import Tasks
from workbench import quant_report
from workbench.draft import Draft
from workbench.events import Event
from workbench.overnight import Entry
from workbench.quant_run import QuantRun
from workbench.settings import Settings
from workbench.waiting_line import WaitingLine
from workbench.words import Sentence


class QueueRun(QObject):
    """`run` is the fold of the events of the entry at work, None between two.

    Signals: `changed` when the list or a state did, `moved` while one goes on, `made(result)` when one ended well.
    """

    changed = Signal()
    moved = Signal()
    made = Signal(object)

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings, self._tasks = settings, tasks
        self._task: asyncio.Task | None = None
        self._at: Entry | None = None
        self.line = WaitingLine()
        self.run: QuantRun | None = None
        self._told: set[Path] = {entry.output for entry in self.line.entries if entry.outcome}

    @property
    def going(self) -> bool:
        return self._task is not None

    def add(self, draft: Draft) -> None:
        """Put the draft's recipe for its model at the end."""
        if draft.model is not None and draft.plan is not None:
            self.line.add(draft.model.folder, draft.recipe, draft.library)
            self.changed.emit()

    def remove(self, entry: Entry) -> None:
        self.line.remove(entry)
        self.changed.emit()

    def move(self, entry: Entry, step: int) -> None:
        """Let an entry that waits come later, or earlier."""
        self.line.move(entry, step)
        self.changed.emit()

    def refresh(self) -> None:
        """Show what the command line changed meanwhile."""
        if self.line.refresh():
            self.changed.emit()

    def start(self) -> None:
        """Work until nothing waits."""
        if self._task is None and self.line.waiting:
            self._task = self._tasks.start(self._work())
            self._task.add_done_callback(self._on_ended)
            self.changed.emit()

    def stop(self) -> None:
        """End the worker; what was at work waits again."""
        if self._task:
            self._task.cancel()

    def open_report(self, entry: Entry) -> None:
        """Show the report of an entry's job in the browser."""
        if entry.outcome and entry.outcome.job:
            self._tasks.start(_open(lambda: quant_report.of_job(entry.outcome.job)))

    def open_page(self) -> None:
        """Show what came of all in the browser."""
        self._tasks.start(_open(self.line.page))

    def statuses(self) -> list[Status]:
        """What is at work, for the line at the foot of the window."""
        entry = self.line.current
        if entry is None:
            return []
        words = Sentence(
            "Queue: {recipe}, {count} waiting", {"recipe": entry.recipe.name, "count": len(self.line.waiting)}
        )
        return [Status(words, self.run.share if self.run else None, self.run.left_s() if self.run else None)]

    async def _work(self) -> None:
        await self.line.run(self._settings, self._on_event)

    def _on_event(self, entry: Entry, event: Event) -> None:
        if self._at is not entry:
            self._at, self.run = entry, QuantRun()
            self._tell()
        self.run.apply(event)
        self.moved.emit()

    def _on_ended(self, _task: asyncio.Task) -> None:
        self._task = self.run = self._at = None
        self._tell()

    def _tell(self) -> None:
        for entry in self.line.entries:
            if entry.outcome and not entry.outcome.failure and entry.output not in self._told:
                self._told.add(entry.output)
                self.made.emit(entry.output)
        self.changed.emit()


async def _open(made) -> None:
    page = await asyncio.to_thread(made)
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(page)))
