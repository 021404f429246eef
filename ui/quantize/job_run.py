"""The one quantization that the page runs or shows: its folder, the fold of its events, its clock."""

import asyncio
import time
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from ui.tasks import Tasks
from workbench import jobs, quant_report
from workbench.admission import Smaller
from workbench.errors import WorkbenchError
from workbench.events import Cancelled, Event, Failed
from workbench.quant_run import QuantRun
from workbench.settings import Settings


class JobRun(QObject):
    """`run` is None where no job is shown. `going` between `begin` and `end`, `ending` once the user cancelled.

    Signals: `moved` after each event, `ended` when the worker is gone, `made(result)` when a job ended well.
    """

    moved = Signal()
    ended = Signal()
    made = Signal(object)

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings, self._tasks = settings, tasks
        self.run: QuantRun | None = None
        self.folder: Path | None = None
        self.going = self.ending = False
        self._started_s = 0.0

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return bool(self.run and self.run.path)

    @property
    def failed(self) -> bool:
        return bool(self.run and self.run.failed)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def forget(self) -> None:
        """Show no job any more."""
        self.run = self.folder = None

    def begin(self, spec: dict[str, Any]) -> None:
        """Make the job; `work` runs it."""
        self.run, self.folder = QuantRun(), jobs.create("quantize", spec)
        self.going, self.ending, self._started_s = True, False, time.monotonic()

    async def work(self) -> None:
        """Run the job to its end; a failure is part of `run`."""
        assert self.run is not None and self.folder is not None
        try:
            await jobs.run(self.folder, self._on_event, self._settings, self._tasks.ask)
        except Smaller as smaller:
            jobs.change(self.folder, smaller.offer.value)
            await self.work()
            return
        except WorkbenchError as error:
            if self.run.failed is None:
                self.run.apply(Failed(error.message, error.hint_template, error.values))
        if self.run.path:
            self.made.emit(Path(self.run.path))

    def end(self) -> None:
        """The worker is gone."""
        self.going = self.ending = False
        if self.run and not (self.run.path or self.run.failed):
            self.run.apply(Cancelled())
        self.ended.emit()

    def reopen(self, folder: Path) -> dict[str, Any]:
        """Show a job of earlier as it ended, from its folder alone; what it was asked to do in the end."""
        self.run, self.folder = QuantRun(), folder
        for event in jobs.replay(folder):
            self.run.apply(event)
        spec = jobs.spec_of(folder)
        return spec | {"recipe": self.run.amended[-1].recipe} if self.run.amended else spec

    def open_report(self) -> None:
        """Show the report in the browser."""
        if self.folder:
            self._tasks.start(self._open_report(self.folder))

    async def _open_report(self, folder: Path) -> None:
        page = await asyncio.to_thread(quant_report.of_job, folder)
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(page)))

    def _on_event(self, event: Event) -> None:
        assert self.run is not None
        self.run.apply(event)
        self.moved.emit()
