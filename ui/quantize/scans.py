"""The sensitivity of a model's layers: read where a scan is kept, else measured by a job that can be cancelled."""

import asyncio
import shutil

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench import jobs, sensitivities, whatif
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.progress import Progress
from workbench.quant_events import SensitivityMeasured
from workbench.recipe import Recipe
from workbench.settings import Settings


class Scans(QObject):
    """`found` is what is known of each layer by name, `missing` how many a scan would still measure; None before that
    is known.

    Signals: `changed` when either did, or the progress or the error of a scan.
    """

    changed = Signal()

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings, self._tasks = settings, tasks
        self._model: Model | None = None
        self._recipe: Recipe | None = None
        self._looked = False
        self._looking: asyncio.Task | None = None
        self._scanning: asyncio.Task | None = None
        self.found: dict[str, SensitivityMeasured] = {}
        self.missing: int | None = None
        self.progress: Progress | None = None  # while a scan runs
        self.ending = False
        self.error: WorkbenchError | None = None

    def take(self, model: Model, recipe: Recipe) -> None:
        """From now on it is about this model, with this recipe's calibration and groups. A scan of it goes on."""
        if model is self._model and recipe == self._recipe:
            return
        if model is not self._model:
            self.drop()
        self._model, self._recipe, self._looked, self.error = model, recipe, False, None

    def look(self) -> None:
        """Find the scan that is kept, if that was not done; one that runs is waited for."""
        if self._model and self._recipe and not self._looked and self._scanning is None:
            self._looked = True
            if self._looking:
                self._looking.cancel()
            self._looking = self._tasks.start(self._look(self._model, self._recipe))

    def scan(self) -> None:
        """Measure what is not known."""
        if self._model and self._recipe and self._scanning is None and self.missing != 0:
            if self._looking:
                self._looking.cancel()  # the job tells a kept scan as well
            self.progress, self.error, self.found = Progress(), None, dict(self.found)
            self._scanning = self._tasks.start(self._scan(self._model, self._recipe))
            self._scanning.add_done_callback(self._on_ended)
            self.changed.emit()

    def cancel(self) -> None:
        """End the scan; what it had gathered is taken up by the next."""
        if self._scanning and not self.ending:
            self.ending = True
            self._scanning.cancel()
            self.changed.emit()

    def drop(self) -> None:
        """Know nothing, run nothing."""
        self.cancel()
        if self._looking:
            self._looking.cancel()
        self._model = self._recipe = self.error = None
        self._know({}, None)

    async def _look(self, model: Model, recipe: Recipe) -> None:
        try:
            kept = await asyncio.to_thread(sensitivities.kept, model, recipe)
        except WorkbenchError as error:  # the calibration text cannot be read
            self.error = error
            self._know({}, None)
            return
        if (len(kept.missing), kept.found) != (self.missing, self.found):
            self._know(kept.found, len(kept.missing))

    async def _scan(self, model: Model, recipe: Recipe) -> None:
        folder = jobs.create("sensitivity", whatif.spec(model.folder, recipe))
        try:
            await jobs.run(folder, self._on_event, self._settings, self._tasks.ask)
        except WorkbenchError as error:
            self.error = None if self.ending else error
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the scan lies with the statistics, here is nothing to reopen

    def _on_event(self, event: Event) -> None:
        if self.ending or self.progress is None:
            return
        self.progress.apply(event)
        if isinstance(event, SensitivityMeasured):
            self.found[event.name] = event
        self.changed.emit()

    def _on_ended(self, _task: asyncio.Task) -> None:
        """What is kept now counts, for the recipe as it stands now."""
        self.progress = self._scanning = None
        self.ending = self._looked = False
        self.look()
        self.changed.emit()

    def _know(self, found: dict[str, SensitivityMeasured], missing: int | None) -> None:
        self.found, self.missing = found, missing
        self.changed.emit()
