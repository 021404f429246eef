"""A result in other tools' formats: what is possible, and the job that writes one."""

import asyncio
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench import export, jobs
from workbench.errors import WorkbenchError
from workbench.export import Export
from workbench.progress import Progress
from workbench.settings import Settings


class Exports(QObject):
    """Signals: `changed` when an offer or the progress did, `made(folder)` when a format was written."""

    changed = Signal()
    made = Signal(object)

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings, self._tasks = settings, tasks
        self._result: Path | None = None
        self._writing: asyncio.Task | None = None
        self.offers: dict[str, Export | WorkbenchError] = {}  # by format: how it would be, or why it cannot be
        self.progress: Progress | None = None  # while one is written
        self.output: Path | None = None
        self.error: WorkbenchError | None = None

    def look(self, result: Path) -> None:
        """Find out what can be made of the folder."""
        if result == self._result:
            return
        self._result, self.offers, self.output, self.error = result, {}, None, None
        self._tasks.start(self._look(result))

    def write(self, form: str) -> None:
        """Write the result in this format beside it."""
        offer = self.offers.get(form)
        if isinstance(offer, Export) and self._writing is None:
            self.progress, self.output, self.error = Progress(), None, None
            self._writing = self._tasks.start(self._write(offer))
            self.changed.emit()

    def cancel(self) -> None:
        if self._writing:
            self._writing.cancel()

    @property
    def refusal(self) -> WorkbenchError | None:
        """Why nothing at all can be exported."""
        refused = [offer for offer in self.offers.values() if isinstance(offer, WorkbenchError)]
        return refused[0] if refused and len(refused) == len(self.offers) else None

    async def _look(self, result: Path) -> None:
        offers = await asyncio.to_thread(_offers, result)
        if result == self._result:
            self.offers = offers
            self.changed.emit()

    async def _write(self, offer: Export) -> None:
        output = _free(offer.model.folder, offer.form)
        try:
            await jobs.run(jobs.create("export", export.spec(offer, output)), self._on_event, self._settings)
            self.output = output
        except WorkbenchError as error:
            self.error = error
        finally:
            self.progress = self._writing = None
            self.changed.emit()
        if self.output:
            self.made.emit(self.output)

    def _on_event(self, event) -> None:
        if self.progress:
            self.progress.apply(event)
            self.changed.emit()


def _offers(result: Path) -> dict[str, Export | WorkbenchError]:
    found: dict[str, Export | WorkbenchError] = {}
    for form in export.FORMATS:
        try:
            found[form] = export.plan(result, form)
        except WorkbenchError as error:
            found[form] = error
    return found


def _free(result: Path, form: str) -> Path:
    """A name beside the result that is not taken."""
    name = f"{result.name}-{form.upper()}"
    taken = (name if number == 1 else f"{name}-{number}" for number in range(1, 1000))
    return next(path for path in map(result.with_name, taken) if not path.exists())
