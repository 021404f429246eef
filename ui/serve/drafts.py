"""Finds out beside the window what could draft for the models of the Serve page, and makes adapted copies."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from ui.engines import SIDES
from ui.notices import Notices
from ui.tasks import Tasks
from ui.widgets.profile_form import ProfileForm
from workbench import adaption, jobs
from workbench.catalog.devices import Device
from workbench.catalog.folder import Unreadable, inspect
from workbench.catalog.model import Model
from workbench.engine import drafts
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError
from workbench.settings import Settings
from workbench.words import Sentence

PAUSE_MS = 150  # a number that is being typed is judged once


class Drafts(QObject):
    """Keeps the lists of the forms it is attached to. `changed` when one of them has other ways than before."""

    changed = Signal()

    def __init__(self, settings: Settings, tasks: Tasks, notices: Notices, parent: QObject):
        super().__init__(parent)
        self._settings, self._tasks, self._notices = settings, tasks, notices
        self._found: dict[Path, Model | Unreadable] = {}
        self._device: Device | None = None
        self._facts: EngineFacts | None = None
        self._forms: dict[str, ProfileForm] = {}
        self._asked: dict[str, tuple[Model, Profile]] = {}
        self._copying: asyncio.Task | None = None
        self._timers = {side: QTimer(self, singleShot=True, interval=PAUSE_MS) for side in SIDES}
        for side, timer in self._timers.items():
            timer.timeout.connect(lambda side=side: self._begin(side))

    def attach(self, side: str, form: ProfileForm) -> None:
        """Serve this side's form."""
        self._forms[side] = form
        form.drafting.added.connect(lambda path: self._tasks.start(self._add(side, path)))
        form.drafting.copy_asked.connect(lambda path: self._copy(side, path))

    def show_library(self, found: Sequence[Model | Unreadable]) -> None:
        """Judge these models and heads from now on, beside those that were added."""
        self._found |= {entry.folder: entry for entry in found}
        self._again()

    def show_engine(self, device: Device | None, facts: EngineFacts | None) -> None:
        self._device, self._facts = device, facts
        self._again()

    def ask(self, side: str, model: Model | None) -> None:
        """Judge for this model as the side's form would have it served."""
        self._asked.pop(side, None)
        if model is None:
            return
        try:
            profile = self._forms[side].profile()
        except WorkbenchError:
            profile = None  # what cannot draft must still be judged
        self._asked[side] = (model, profile or Profile(model.folder))
        self._timers[side].start()

    def _copy(self, side: str, draft: Path) -> None:
        """Make the copy of `draft` that is adapted to the side's model."""
        if side in self._asked and self._copying is None:
            self._copying = self._tasks.start(self._make(side, draft, self._asked[side][0].folder))
            self._show_copying(True)

    def _show_copying(self, copying: bool) -> None:
        for form in self._forms.values():
            form.drafting.show_copying(copying)

    def _again(self) -> None:
        for side in self._asked:
            self._timers[side].start()

    def _begin(self, side: str) -> None:
        if asyncio._get_running_loop():  # else the window is closing
            self._tasks.start(self._judge(side))

    async def _judge(self, side: str) -> None:
        asked = self._asked.get(side)
        if asked is None or self._device is None or not asyncio._get_running_loop():  # the window is closing
            return
        found = list(self._found.values())
        listed = await asyncio.to_thread(drafts.listing, *asked, found, self._device, self._facts)
        if self._asked.get(side) == asked:
            self._forms[side].drafting.show_candidates(listed)
            self.changed.emit()

    async def _add(self, side: str, folder: Path) -> None:
        try:
            self._found[folder] = await asyncio.to_thread(inspect, folder)
        except WorkbenchError as error:
            self._found[folder] = Unreadable(folder, error)
        if side in self._asked:
            self._timers[side].start()

    async def _make(self, side: str, draft: Path, target: Path) -> None:
        try:
            chosen = await asyncio.to_thread(adaption.plan, draft, target)
            output = adaption.proposed(draft, target)
            await jobs.run(jobs.create("adapt", adaption.spec(chosen, output)), lambda event: None, self._settings)
        finally:
            self._copying = None
            self._show_copying(False)
        self._notices.info(Sentence("The adapted copy is in {folder}.", {"folder": str(output)}))
        self._forms[side].drafting.add(output)
