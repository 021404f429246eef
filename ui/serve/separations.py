"""Finds out beside the window what a choice of one engine or several means, and what stands against it."""

import asyncio

from PySide6.QtCore import QObject, QTimer, Signal

from ui.engines import SIDES
from ui.tasks import Tasks
from ui.widgets.profile_form import ProfileForm
from workbench.catalog.devices import Device
from workbench.engine import chunking, handover, separation
from workbench.engine.facts import EngineFacts
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError
from workbench.words import Sentence

PAUSE_MS = 150  # a number that is being typed is looked at once


class Separations(QObject):
    """Tells the forms it is attached to. `changed` when what stands against a start is another."""

    changed = Signal()

    def __init__(self, tasks: Tasks, parent: QObject):
        super().__init__(parent)
        self._tasks = tasks
        self._devices: list[Device] = []
        self._forms: dict[str, ProfileForm] = {}
        self._problems: dict[str, list[Sentence]] = {}
        self._timers = {side: QTimer(self, singleShot=True, interval=PAUSE_MS) for side in SIDES}
        for side, timer in self._timers.items():
            timer.timeout.connect(lambda side=side: self._begin(side))

    def attach(self, side: str, form: ProfileForm) -> None:
        self._forms[side] = form
        form.changed.connect(self._timers[side].start)
        self._timers[side].start()

    def show_devices(self, devices: list[Device]) -> None:
        """Judge for these devices from now on."""
        self._devices = devices
        for side in self._forms:
            self._timers[side].start()

    def show_facts(self, facts: EngineFacts) -> None:
        """Offer what this engine can do."""
        for form in self._forms.values():
            form.separating.show_lacking(handover.missing(facts))

    def check(self, side: str) -> None:
        """Raise what stands against a start of the side's form."""
        if problems := self._problems.get(side):
            raise WorkbenchError(problems[0].template, "Change that, then start again.", **problems[0].values)

    def _begin(self, side: str) -> None:
        if asyncio._get_running_loop():  # else the window is closing
            self._tasks.start(self._look(side))

    async def _look(self, side: str) -> None:
        form = self._forms[side]
        try:
            profile, chosen = form.profile(), form.chosen()
        except WorkbenchError:
            profile = chosen = None  # the command's place says why
        told: list[Sentence] = []
        problems: list[Sentence] = []
        if not asyncio._get_running_loop():  # the window is closing, Qt takes a last step of this
            return
        if isinstance(chosen, Separation) and self._devices:
            told = separation.remarks(chosen, self._devices)
            problems = await asyncio.to_thread(separation.problems, chosen, self._devices)
        elif profile and form.separating.mode == "one":
            told = chunking.explained(profile)
        self._problems[side] = problems
        form.separating.show_words(told, problems)
        self.changed.emit()
