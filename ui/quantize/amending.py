"""A change of mind while a job goes on: what is wanted for the blocks not yet begun, until the job has it."""

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from ui.quantize.job_run import JobRun
from ui.tasks import Tasks
from workbench import amend, recipe
from workbench.draft import Draft
from workbench.errors import WorkbenchError
from workbench.plan import Plan
from workbench.recipe import Recipe


class Amending(QObject):
    """`wanted` is the draft with the change, None where nothing is wanted; its plan covers the blocks made, too.

    `waits` is the block from which a change that was handed over will hold; it stays wanted until the job has it.
    `error` is why none could be handed over.
    `changed` when any of that did.
    """

    changed = Signal()

    def __init__(self, tasks: Tasks, job: JobRun):
        super().__init__()
        self._tasks, self._job = tasks, job
        self._draft: Draft | None = None  # the page's, as the job works by it
        self._asked: Recipe | None = None
        self._known = 0  # how many changes the job had taken when it was looked at last
        self._first: int | None = None
        self.wanted: Draft | None = None
        self.waits: int | None = None
        self.error: WorkbenchError | None = None
        self.handing = False

    @property
    def running(self) -> bool:
        return self._job.going

    @property
    def first(self) -> int | None:
        """The first block that can still be changed; None where there is none."""
        run, model = self._job.run, self._draft.model if self._draft else None
        if not self._job.going or self._job.ending or run is None or model is None:
            return None
        return run.begun if run.begun < (model.layers or 0) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The layers that the change reaches."""
        if self.wanted is None or self._draft is None:
            return ()
        before = {planned.linear.name: planned.choice for planned in self._draft.plan.linears}
        return tuple(
            planned.linear.name for planned in self.wanted.plan.linears if planned.choice != before[planned.linear.name]
        )

    @property
    def barred(self) -> Plan | None:
        """The plan of the change where conflicts stand in its way."""
        return self.wanted.plan if self.wanted and self.wanted.plan.blocks else None

    def begin(self, draft: Draft) -> None:
        """A job goes by `draft` from now on."""
        self._draft, self._known = draft, 0
        self.forget()

    def forget(self) -> None:
        """Want nothing."""
        self.wanted = self._asked = self.waits = self.error = None
        self.changed.emit()

    def change(self, take: Callable[[Draft], None]) -> None:
        """Want what `take` makes of the draft, for the blocks not begun; the calibration stays as it was read."""
        assert self._draft is not None
        would = copy(self.wanted or self._draft)
        would.recipe = self._asked or would.recipe
        take(would)
        kept = {name: getattr(self._draft.recipe, name) for name in amend.CALIBRATION}
        self._asked, self.waits = replace(would.recipe, **kept), None
        self._plan()

    def moved(self) -> None:
        """The job went on: the blocks that a change can reach are fewer, or it has taken one."""
        run = self._job.run
        if run is None or self._draft is None:
            return
        if len(run.amended) > self._known:
            self._known = len(run.amended)
            self._draft.take_amended(recipe.from_dict(run.amended[-1].recipe))
            if self.waits is not None:
                self.forget()
            else:
                self._plan()  # what was changed once more meanwhile
        elif self.waits is not None and run.begun > self.waits:
            self.forget()  # it was not taken; the run's notes say why
        elif self._asked and self.first != self._first:
            self._plan()

    def apply(self) -> None:
        """Hand the change over to the job."""
        if self.names and not self.barred and not self.handing and self.first is not None:
            self.handing = True
            self._tasks.start(self._apply(self._asked))
            self.changed.emit()

    async def _apply(self, asked: Recipe) -> None:
        folder = self._job.folder
        try:
            plan = await asyncio.to_thread(amend.amend, folder, asked)
            if not plan.blocks and self._asked is asked:  # no second thought came meanwhile
                self.waits = max(line.from_block for line in amend.read(folder))
        except WorkbenchError as error:
            self.error = error
        finally:
            self.handing = False
        self.changed.emit()

    def _plan(self) -> None:
        """Plan what is wanted for all blocks, those begun as they are."""
        self._first, self.error = self.first, None
        if self._asked is not None and self._first is not None:
            try:
                plan = amend.combined(self._draft.plan, self._asked, self._first)
            except WorkbenchError as error:
                self.error = error
            else:
                self.wanted = copy(self._draft)
                self.wanted.recipe, self.wanted.plan = self._asked, plan
        self.changed.emit()
