"""Choices tried on single layers before any run: the worker that judges them, and the statistics it judges by."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench import admission, jobs, moments_kept, whatif
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.progress import Progress
from workbench.quant_events import MomentsKept, WhatIf, WhatIfRefused
from workbench.recipe import Choice, Recipe
from workbench.settings import Settings
from workbench.words import Sentence


@dataclass(frozen=True, slots=True)
class Try:
    """A choice that is not in the recipe yet; `everywhere`: for the layer's like in all blocks."""

    choice: Choice
    everywhere: bool


class Tries(QObject):
    """`changed` after an answer, or when the statistics went on. Nothing runs before the first `begin`."""

    changed = Signal()

    def __init__(self, settings: Settings, tasks: Tasks):
        super().__init__()
        self._settings, self._tasks = settings, tasks
        self._tried: dict[str, Try] = {}
        self._asked: dict[str, Choice] = {}
        self._answers: dict[str, tuple[Choice, WhatIf]] = {}  # the newest by layer, and to what
        self._spec: dict = {}
        self._blocks: dict[str, int] = {}
        self._worker: whatif.Trials | None = None
        self._running: list[asyncio.Task] = []
        self.gathering: Progress | None = None  # of the statistics, while they are not complete
        self.error: WorkbenchError | None = None

    @property
    def awake(self) -> bool:
        """Whether a worker waits for questions."""
        return self._worker is not None

    def of(self, name: str) -> Try | None:
        """What is being tried on a layer."""
        return self._tried.get(name)

    def begin(self, model: Model, recipe: Recipe, name: str, tried: Try) -> None:
        """Try a choice on a layer; the worker starts with the first."""
        self._tried[name] = tried
        self.ask(model, recipe, name, tried.choice)

    def ask(self, model: Model, recipe: Recipe, name: str, choice: Choice) -> None:
        """Have the worker say what a choice does to a layer, unless it was asked that last."""
        self._serve(model, recipe)
        if self._worker and self._asked.get(name) != choice:
            self._asked[name] = choice
            self._worker.ask(name, choice)

    def end(self, name: str) -> None:
        """Try nothing more on a layer: the choice was kept or discarded."""
        self._tried.pop(name, None)
        self.changed.emit()

    def answer(self, name: str, choice: Choice | None) -> WhatIf | None:
        """What the worker said of this very choice; a quick answer comes before the final one."""
        asked, found = self._answers.get(name, (None, None))
        return found if asked == choice else None

    def state(self, name: str) -> Sentence | str | None:
        """How far the answer is; None when all of it is there."""
        if self._worker is None:
            return f"{self.error} {self.error.hint}".strip() if self.error else None
        if (refused := self._worker.refused.get(name)) and not self._worker.waiting(name):
            told = WorkbenchError(refused.message, refused.hint, **refused.values)
            return f"{told} {told.hint}".strip()
        answer = self.answer(name, self._asked.get(name))
        if self.gathering and (answer is None or answer.output_error is None):
            values = {"done": self.gathering.done, "total": self.gathering.total}
            if not self.gathering.total:
                return Sentence("Calibration statistics are being gathered; the output error follows.")
            return Sentence(
                "Calibration statistics are being gathered, block {done} of {total}; the output error follows.", values
            )
        if self._worker.waiting(name) and answer is None:
            return Sentence("Quantizing this layer for a trial…")
        if self.error:
            return f"{self.error} {self.error.hint}".strip()
        if answer and not answer.final:
            return Sentence("From {rows} rows of the layer; all of them follow.", {"rows": answer.rows})
        if answer and answer.estimated:
            return Sentence("The output error is an estimate: only a part of this layer's statistics is kept.")
        return None

    def drop(self) -> None:
        """Forget all that is tried and end the worker."""
        self._tried.clear()
        self._rest()

    def _rest(self) -> None:
        for task in self._running:
            task.cancel()
        self._running.clear()
        self._asked.clear()
        self._answers.clear()
        self._worker = self.gathering = self.error = None

    def _serve(self, model: Model, recipe: Recipe) -> None:
        """Have a worker for this model and this calibration."""
        spec = _calibration(model, recipe)
        if self._worker and spec == self._spec:
            return
        self._rest()
        self._spec = spec
        self._blocks = {linear.name: linear.block for linear in model.linears}
        self._worker = whatif.Trials(model.folder, recipe, self._settings, self._on_event)
        self._running.append(self._tasks.start(self._keep(self._worker)))
        self._running.append(self._tasks.start(self._gather(model, recipe)))

    async def _keep(self, worker: whatif.Trials) -> None:
        try:
            await worker.run(self._tasks.ask)
        except asyncio.CancelledError:  # also where nothing was to be started
            if worker is self._worker:
                self._rest()
                self.changed.emit()
            raise
        except WorkbenchError as error:
            if worker is self._worker:
                self._rest()
                self.error = error
                self.changed.emit()

    async def _gather(self, model: Model, recipe: Recipe) -> None:
        try:
            if await asyncio.to_thread(moments_kept.gathered, model.folder, recipe):
                return
            self.gathering = Progress()
            self.changed.emit()
            folder = jobs.create("statistics", whatif.spec(model.folder, recipe))
            await self._run(folder)
        except WorkbenchError as error:
            self.error = error
        self.gathering = None
        self._ask_again()
        self.changed.emit()

    async def _run(self, folder: Path) -> None:
        try:
            await jobs.run(folder, self._on_statistics, self._settings, admission.wait)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the statistics lie elsewhere, there is nothing to come back to

    def _on_statistics(self, event: Event) -> None:
        if self.gathering:
            self.gathering.apply(event)
        if isinstance(event, MomentsKept):
            self._ask_again(event.block)
        self.changed.emit()

    def _ask_again(self, block: int | None = None) -> None:
        """What was answered without statistics, of one block or of all."""
        for name, choice in self._asked.items():
            answer = self.answer(name, choice)
            if self._worker and answer and answer.output_error is None and block in (None, self._blocks[name]):
                self._worker.ask(name, choice)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, WhatIf):
            self._answers[event.module] = (self._asked[event.module], event)
        if isinstance(event, WhatIf | WhatIfRefused):
            self.changed.emit()


def _calibration(model: Model, recipe: Recipe) -> dict:
    """What the statistics depend on."""
    names = ("samples", "length", "calibration_file", "seed")
    return {"model": str(model.folder)} | {name: getattr(recipe, name) for name in names}
