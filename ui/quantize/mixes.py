"""Bits for every layer under a target: found in a thread, shown, and then the recipe's or forgotten."""

import asyncio

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench import allocation
from workbench.allocation import Proposal, Target
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.mixed import Mixed
from workbench.quant_events import SensitivityMeasured
from workbench.recipe import Recipe

PAUSE_S = 0.2  # a value that is being turned passes over many


class Mixes(QObject):
    """`proposal` or `error` answers `target`; both are None while it is searched for. `inside`: the recipe holds a mix.

    Signals: `changed` when one of them did, `recipe_wanted(recipe)` to take a mix or to go back behind one.
    """

    changed = Signal()
    recipe_wanted = Signal(object)

    def __init__(self, tasks: Tasks):
        super().__init__()
        self._tasks = tasks
        self._searching: asyncio.Task | None = None
        self._base: Recipe | None = None
        self._asked: Recipe | None = None  # for which base
        self._used: Mixed | None = None
        self.inside = False
        self.target: Target | None = None
        self.proposal: Proposal | None = None
        self.error: WorkbenchError | None = None

    def want(self, model: Model, found: tuple[SensitivityMeasured, ...], target: Target) -> None:
        """Search the mix of least damage under the target; what was searched before is not wanted any more."""
        self._forget()
        self.target, self._asked = target, self._base
        self._searching = self._tasks.start(self._search(model, self._base, found, target))
        self.changed.emit()

    def follow(self, model: Model, recipe: Recipe) -> Recipe:
        """Take another recipe and return what a mix would be made of: where it holds one already, what lies below it.

        A proposal made of another recipe is forgotten.
        """
        self._base = self._used.below(model, recipe) if self._used else recipe
        self.inside = self._base != recipe
        if self.target and self._asked != self._base:
            self.discard()
        return self._base

    def use(self) -> None:
        """Have the mix in the recipe."""
        if proposal := self.proposal:
            self._used = Mixed(proposal.base, proposal.recipe)
            self.discard()
            self.recipe_wanted.emit(proposal.recipe)

    def undo(self) -> None:
        """Take the mix out of the recipe; what was edited since stays."""
        if self.inside and self._base:
            self._used = None
            self.recipe_wanted.emit(self._base)

    def discard(self) -> None:
        """Forget the proposal; the recipe stays."""
        self._forget()
        self.changed.emit()

    def drop(self) -> None:
        """Forget the mix in the recipe as well: another model comes."""
        self._used = None
        self.discard()

    def _forget(self) -> None:
        if self._searching:
            self._searching.cancel()
        self._searching = self.target = self.proposal = self.error = None

    async def _search(
        self, model: Model, recipe: Recipe, found: tuple[SensitivityMeasured, ...], target: Target
    ) -> None:
        await asyncio.sleep(PAUSE_S)
        try:
            self.proposal = await asyncio.to_thread(allocation.propose, model, recipe, found, target)
        except WorkbenchError as error:
            self.error = error
        self.changed.emit()
