"""Histograms of single layers before any run: one short job each, kept once made."""

import asyncio
import shutil
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench import jobs
from workbench.errors import WorkbenchError
from workbench.events import Event, Histogram
from workbench.settings import Settings

PAUSE_S = 0.25  # arrow keys pass over many layers; only the one they rest on is read


class Looks(QObject):
    """`changed` after a histogram arrived or could not be made. A later wish replaces the earlier one."""

    changed = Signal()

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings = settings
        self._tasks = tasks
        self._made: dict[tuple[Path, str], Histogram] = {}
        self._failed: dict[tuple[Path, str], WorkbenchError] = {}
        self._task: asyncio.Task | None = None
        self._wanted: tuple[Path, str] | None = None

    def made(self, model: Path, name: str) -> Histogram | None:
        return self._made.get((model, name))

    def failure(self, model: Path, name: str) -> WorkbenchError | None:
        return self._failed.get((model, name))

    def wants(self, model: Path, name: str) -> bool:
        """Whether this histogram is being made now."""
        return self._wanted == (model, name)

    def want(self, model: Path, name: str) -> None:
        """Have the histogram made unless it is there or on its way."""
        if (model, name) in self._made or self.wants(model, name):
            return
        self.drop()
        self._failed.pop((model, name), None)
        self._wanted = (model, name)
        self._task = self._tasks.start(self._look(model, name))

    def drop(self) -> None:
        """End what is being made."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._wanted = None

    async def _look(self, model: Path, name: str) -> None:
        await asyncio.sleep(PAUSE_S)
        folder = jobs.create("histogram", {"model": str(model), "module": name})

        def on_event(event: Event) -> None:
            if isinstance(event, Histogram):
                self._made[model, name] = event

        try:
            await jobs.run(folder, on_event, self._settings)
            if (model, name) not in self._made:
                raise WorkbenchError("No histogram came back.", "Look at {log}.", log=str(folder / "worker.log"))
            shutil.rmtree(folder, ignore_errors=True)  # nothing to come back to
        except WorkbenchError as error:
            self._failed[model, name] = error
        except asyncio.CancelledError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._wanted = None
        self.changed.emit()
