"""How the model shall be quantized: the draft, and what is looked at and tried before a run."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from ui.log_drawer import Status
from ui.quantize.amending import Amending
from ui.quantize.job_run import JobRun
from ui.quantize.looks import Looks
from ui.quantize.mixes import Mixes
from ui.quantize.scans import Scans
from ui.quantize.tries import Tries, Try
from ui.tasks import Tasks
from workbench.catalog.model import Model
from workbench.conflict import Fix
from workbench.draft import Draft
from workbench.recipe import Choice, Recipe
from workbench.settings import Settings
from workbench.words import Sentence


class Choosing(QObject):
    """`draft` is the page's. While its job is going, choices are `amending`'s: for the blocks not begun.

    Signals: `replanned` when the plan is another one, `touched` when only what is tried or looked at changed.
    """

    replanned = Signal()
    touched = Signal()

    def __init__(self, settings: Settings, tasks: Tasks, job: JobRun):
        super().__init__()
        self._job = job
        self.draft = Draft(settings.library[0])
        self.looks, self.tries = Looks(settings, tasks), Tries(settings, tasks)
        self.scans, self.mixes = Scans(settings, tasks), Mixes(tasks)
        self.amending = Amending(tasks, job)
        self.amending.changed.connect(self.replanned)
        job.moved.connect(self.amending.moved)
        job.ended.connect(self.amending.forget)
        for each in (self.looks, self.tries, self.scans, self.mixes):
            each.changed.connect(self.touched)
        self.mixes.recipe_wanted.connect(self.take_recipe)
        self.replanned.connect(self._follow)

    @property
    def shown(self) -> Draft:
        """The draft with the change that is wanted while its job is going."""
        return self.amending.wanted or self.draft

    def rest(self) -> None:
        """End what is looked at, tried and scanned: another model comes, or a run needs its share of the machine."""
        self.looks.drop()
        self.tries.drop()
        self.scans.drop()
        self.mixes.discard()

    def start_job(self, measure: bool) -> None:
        """Make the job of the draft. `measure` compares the result with the original afterwards."""
        self.rest()
        self._job.begin(self.draft.spec(measure))
        self.amending.begin(self.draft)

    def take_model(self, model: Model) -> None:
        """Plan for another model, or anew for one whose files changed."""
        self.rest()
        self.mixes.drop()
        self._job.forget()
        self.draft.take_model(model)
        self.replanned.emit()

    def take_job(self, spec: dict[str, Any], model: Model | None) -> None:
        """Take the settings of a job that is shown again."""
        self.rest()
        self.mixes.drop()
        self.draft.take_job(spec, model)
        self.replanned.emit()

    def statuses(self) -> list[Status]:
        """What runs for the choosing, for the line below the window."""
        found = []
        if gathering := self.tries.gathering:
            found.append(Status(Sentence("Gathering calibration statistics"), gathering.share))
        if scan := self.scans.progress:
            found.append(Status(Sentence("Scanning the sensitivity"), scan.share, scan.left_s()))
        return found

    def _follow(self) -> None:
        """A scan and a mix are of what the recipe says below a mix that it holds."""
        if model := self.draft.model:
            self.scans.take(model, self.mixes.follow(model, self.draft.recipe))

    def take_recipe(self, chosen: Recipe) -> None:
        """Plan anew with another recipe."""
        self._change(lambda draft: draft.take_recipe(chosen))

    def take_fix(self, fix: Fix) -> None:
        """Take a way out of a conflict."""
        if fix.output:
            self.take_output(fix.output)
        else:
            self.take_recipe(fix.recipe)

    def take_output(self, path: Path) -> None:
        """Write the result to `path`."""
        self._change(lambda draft: draft.take_output(path))

    def take_choice(self, name: str, choice: Choice, everywhere: bool) -> None:
        """Quantize one layer, or its like in all blocks, by `choice`."""
        self._change(lambda draft: draft.take_choice(name, choice, everywhere))

    def try_choice(self, name: str, choice: Choice, everywhere: bool) -> None:
        """Show what a choice would do to a layer; the recipe stays until `keep`. A running job has no time to try."""
        if self._job.going:
            self.take_choice(name, choice, everywhere)
        if self.draft.plan is None or self._job.going:
            return
        planned = next((entry.choice for entry in self.draft.plan.linears if entry.linear.name == name), None)
        if choice == planned and not everywhere:
            self.tries.end(name)
        else:
            self.tries.begin(self.draft.model, self.draft.recipe, name, Try(choice, everywhere))
        self.touched.emit()

    def keep(self, name: str) -> None:
        """Write what is tried on a layer into the recipe."""
        if tried := self.tries.of(name):
            self.take_choice(name, tried.choice, tried.everywhere)
            self.tries.end(name)

    def look(self, names: Iterable[str]) -> None:
        """Read the weights of the layers in view that no run has reached, for their histograms."""
        if self.draft.model and not self._job.going:
            names = list(names)
            done = self._job.run.modules if self._job.run else ()
            self.looks.want(self.draft.model.folder, [name for name in names if name not in done])
            self._ask(names)
        self.touched.emit()

    def _ask(self, names: list[str]) -> None:
        """A worker that is there anyhow also tells what the plan does to the layers in view."""
        if self.tries.awake and self.draft.plan:
            planned = {entry.linear.name: entry.choice for entry in self.draft.plan.linears}
            for name in names:
                if name in planned and self.tries.of(name) is None:
                    self.tries.ask(self.draft.model, self.draft.recipe, name, planned[name])

    def _change(self, take: Callable[[Draft], None]) -> None:
        if self.draft.model is None:
            return
        if self._job.going:
            self.amending.change(take)
            return
        self._job.forget()  # what an earlier run showed makes way
        take(self.draft)
        self.replanned.emit()
