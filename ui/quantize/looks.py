"""Histograms of single layers before any run: one short job each, kept once made."""

import asyncio
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench import jobs
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.quant_events import Histogram
from workbench.settings import Settings

PAUSE_S = 0.25  # arrow keys pass over many layers; only those they rest on are read


class Looks(QObject):
    """`changed` after a histogram arrived or could not be made. One worker at a time."""

    changed = Signal()

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings = settings
        self._tasks = tasks
        self._made: dict[tuple[Path, str], Histogram] = {}
        self._failed: dict[tuple[Path, str], WorkbenchError] = {}
        self._wanted: dict[tuple[Path, str], asyncio.Task] = {}
        self._begun: set[tuple[Path, str]] = set()
        self._turn = asyncio.Lock()

    def made(self, model: Path, name: str) -> Histogram | None:
        return self._made.get((model, name))

    def failure(self, model: Path, name: str) -> WorkbenchError | None:
        return self._failed.get((model, name))

    def wants(self, model: Path, name: str) -> bool:
        """Whether this histogram is being made or waits for its turn."""
        return (model, name) in self._wanted

    def want(self, model: Path, names: Iterable[str]) -> None:
        """Have these made, the layers in view; what else still waits is not wanted any more."""
        keys = {(model, name) for name in names}
        for key in set(self._wanted) - keys - self._begun:
            self._wanted.pop(key).cancel()
        for key in keys - set(self._wanted) - set(self._made):
            self._failed.pop(key, None)
            self._wanted[key] = self._tasks.start(self._look(*key))

    def drop(self) -> None:
        """End all that is being made."""
        for task in self._wanted.values():
            task.cancel()
        self._wanted.clear()

    async def _look(self, model: Path, name: str) -> None:
        await asyncio.sleep(PAUSE_S)
        key = model, name
        async with self._turn:
            self._begun.add(key)
            folder = jobs.create("histogram", {"model": str(model), "module": name})
            try:
                await jobs.run(folder, self._on_event(key), self._settings)
                if key not in self._made:
                    raise WorkbenchError("No histogram came back.", "Look at {log}.", log=str(folder / "worker.log"))
                shutil.rmtree(folder, ignore_errors=True)  # nothing to come back to
            except WorkbenchError as error:
                self._failed[key] = error
            except asyncio.CancelledError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            finally:
                self._begun.discard(key)
        self._wanted.pop(key, None)
        self.changed.emit()

    def _on_event(self, key: tuple[Path, str]) -> Callable[[Event], None]:
        def keep(event: Event) -> None:
            if isinstance(event, Histogram):
                self._made[key] = event

        return keep
