"""Serve: two model slots with their profiles and commands, and what their engines are now."""

import asyncio
import time
from pathlib import Path

from PySide6.QtCore import QTimer, Signal

from ui import icons, language
from ui.engines import SIDES, Engines
from ui.log_drawer import LogSource, Status
from ui.notices import Notices
from ui.page import Page
from ui.plots.looks import NAMES
from ui.serve.both_ways import BothWays
from ui.serve.drafts import Drafts
from ui.serve.remotes import Remotes
from ui.serve.separations import Separations
from ui.serve.slots import Slots
from ui.serve.surface import ServeSurface
from ui.tasks import Tasks
from workbench.catalog import capacity, folder
from workbench.catalog.capacity import Device
from workbench.catalog.model import Model
from workbench.engine import command, facts, parallel
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError
from workbench.settings import Settings
from workbench.words import Sentence


class ServePage(Page):
    """`chat_asked` leads on to the chat, `engine_known(EngineFacts)` says what vLLM is installed.

    The engines themselves are the window's, given at the start.
    """

    chat_asked = Signal()
    engine_known = Signal(object)

    def __init__(self, settings: Settings, tasks: Tasks, notices: Notices, engines: Engines):
        super().__init__(settings, tasks, notices)
        self.engines = engines
        self._device: Device | None = None
        self._facts: EngineFacts | None = None
        self._facts_error: WorkbenchError | None = None
        self._drafts = Drafts(settings, tasks, notices, self)
        self._drafts.changed.connect(self.touch)
        self._separations = Separations(tasks, self)
        self._separations.changed.connect(self.touch)
        self.set_title("Serve")
        self.head.addStretch(1)
        self.start_button = self.set_primary("Start", self.start, icon="play-fill")
        self._lay_out()
        self.slots = Slots(settings, tasks, engines, self.forms, self)
        self.slots.filled.connect(self._on_filled)
        self.slots.weighed.connect(self._on_weighed)
        self.remotes = Remotes(engines, tasks, notices, self.view.sources, self.view.remote_forms)
        self.remotes.changed.connect(self._on_source)
        engines.changed.connect(lambda _side: self.touch())
        engines.sampled.connect(lambda _side: self.touch())
        engines.reduced.connect(lambda side: self.forms[side].show_profile(engines.profile(side)))
        # A start tells little by itself: its seconds must run all the same.
        self._clock = QTimer(self, interval=500)
        self._clock.timeout.connect(self._tick)
        self._clock.start()
        self._choose("original")

    # -- what the window calls

    def arrive(self) -> None:
        self.begin(self._look_around())

    def open(self, model: Model) -> None:
        """Put one model into its slot: quantized ones into the amber, others into the blue."""
        side = "quantized" if model.quantization else "original"
        self.show_model(side, model)
        self._choose(side)

    def open_pair(self, original: Path, quantized: Path) -> None:
        """Put both into their slots, read beside the window."""
        self.slots.open("original", original)
        self.slots.open("quantized", quantized)
        self._choose("quantized")

    def open_server(self) -> None:
        """Let the shown slot be a running server, unless something runs there, and ask where it is."""
        if not self.engines.is_running(self._side):
            self.remotes.choose(self._side)

    def show_model(self, side: str, model: Model | None) -> None:
        """Fill one slot with a model that was read already."""
        self.slots.put(side, model)

    def show_devices(self, devices: list[Device]) -> None:
        """Weigh the profiles on these devices from now on; one engine goes to the first."""
        self._device = devices[0]
        self._drafts.show_engine(self._device, self._facts)
        self._separations.show_devices(devices)
        for side in SIDES:
            self.forms[side].show_device(self._device.kind)
            self.forms[side].parallel.show_gpus(parallel.gpus(devices))
        self.slots.show_device(self._device)

    def show_facts(self, found: EngineFacts) -> None:
        """Build the commands for this vLLM from now on."""
        self._facts = found
        self._drafts.show_engine(self._device, found)
        self._separations.show_facts(found)
        for card in self.cards.values():
            card.show_facts(found)
        for form in self.forms.values():
            form.show_missing(command.missing(found))
        self.profiles.show_facts(found)
        self.engine_known.emit(found)
        self.touch()

    def statuses(self) -> list[Status]:
        names = {side: self.slots[side].model.name for side in SIDES if self.slots[side].model}
        found = []
        for side in SIDES:
            if (state := self.engines.state(side)) in ("starting", "waiting"):
                values = {"name": names.get(side, side)}
                words = Sentence("Starting {name}" if state == "starting" else "{name} waits for its turn", values)
                found.append(Status(words))
        return [*found, *([Status(Sentence("Comparing both ways"))] if self.both_ways.is_comparing else [])]

    def logs(self) -> list[LogSource]:
        files = ((side, self.engines.log_file(side)) for side in SIDES)
        return [LogSource(Sentence("Engine: {side}", {"side": NAMES[side]}), file) for side, file in files if file]

    # -- what the user does

    def start(self) -> None:
        """The primary action: start every filled slot, or stop what runs."""
        if any(self.engines.is_running(side) for side in SIDES):
            self.begin(self.engines.stop_all())
            return
        chosen = {side: self._chosen(side) for side in SIDES if self._is_filled(side) and not self._is_remote(side)}
        if None in chosen.values():
            return
        for side in filter(self.remotes.is_filled, SIDES):
            self.remotes.connect_side(side)
        if len(chosen) == 2:
            self.engines.start_pair(chosen["original"], chosen["quantized"])
        for side, one in chosen.items() if len(chosen) == 1 else ():
            self.engines.start(side, one)

    def start_one(self, side: str) -> None:
        """Start one side, or take the turn from the other where only one fits."""
        if (chosen := self._chosen(side)) is None:
            return
        if self.engines.can_switch(side):
            self.begin(self.engines.switch(side, chosen))
        else:
            self.engines.start(side, chosen)

    def redraw(self) -> None:
        filled = [side for side in SIDES if self._is_filled(side)]
        elsewhere = [side for side in SIDES if self._is_remote(side)]
        running = [side for side in SIDES if self.engines.is_running(side)]
        self.empty.setVisible(not filled and not elsewhere)
        for side in SIDES:
            self._draw_remote(side)
            self.cards[side].setVisible(side in filled and side not in elsewhere)
            self.cards[side].show_fit(self.slots[side].fit)
            self.cards[side].show_separation(self.slots[side].separation)
            self.cards[side].show_engine(self.engines, time.monotonic())
            self.cards[side].start_button.setEnabled(not self.both_ways.is_comparing)
            self.forms[side].setEnabled(side not in running)
        self._draw_primary(filled, running)
        shown = None if self._is_remote(self._side) else self.slots[self._side].separation
        self.both_ways.show_choice(shown, bool(running))
        self.view.show_note(self.engines.pair_note if len(filled) == 2 else None)
        self.losses.show_engines(len(filled) == 2)
        self._draw_command()

    # -- parts

    def _lay_out(self) -> None:
        self.both_ways = BothWays(self.settings, self.tasks)
        self.both_ways.changed.connect(self.touch)
        self.view = view = ServeSurface(self.engines, self.both_ways)
        self.tabs, self.forms, self.cards, self.command = view.tabs, view.forms, view.cards, view.command
        self.profiles, self.losses, self.empty = view.profiles, view.losses, view.empty
        self.content.addWidget(view, 1)
        view.slot_picked.connect(self._choose)
        view.profiles.picked.connect(lambda chosen: self.slots.open_profile(self._side, chosen))
        view.profiles.failed.connect(self.notices.tell)
        for side in SIDES:
            self._connect(side)

    def _connect(self, side: str) -> None:
        form, card = self.forms[side], self.cards[side]
        self._drafts.attach(side, form)
        self._separations.attach(side, form)
        far = self.view.remote_cards[side]
        far.connect_asked.connect(lambda: self.remotes.connect_side(side))
        far.disconnect_asked.connect(lambda: self.engines.stop(side))
        far.chat_asked.connect(self.chat_asked)
        card.start_asked.connect(lambda: self.start_one(side))
        card.stop_asked.connect(lambda: self.engines.stop(side))
        card.chat_asked.connect(self.chat_asked)
        card.context_asked.connect(lambda length: self._shorten(side, length))
        card.retry_asked.connect(lambda length: self._retry(side, length))

    def _draw_primary(self, filled: list[str], running: list[str]) -> None:
        far = bool(filled) and all(map(self._is_remote, filled))
        ending, beginning = ("Disconnect", "Connect") if far else ("Stop", "Start")
        words = ending if running else "Start both" if len(filled) == 2 else beginning
        for setter in (self.start_button.setText, self.start_button.setAccessibleName):
            language.bind(setter, words)
        icons.bind(self.start_button.setIcon, "stop-fill" if running else "play-fill", "ground")
        self.start_button.setEnabled(bool(running or filled) and not self.both_ways.is_comparing)

    def _draw_remote(self, side: str) -> None:
        card = self.view.remote_cards[side]
        card.setVisible(self._is_remote(side))
        self.remotes.redraw(side)
        if self._is_remote(side):
            typed = self.view.remote_forms[side].wanted()
            card.show_engine(self.engines, typed.address)
            self.tabs[side].show_model(typed.name or typed.address)

    def _draw_command(self) -> None:
        chosen = None
        try:
            chosen = self.forms[self._side].chosen()
            if self._facts_error:
                raise self._facts_error
            if isinstance(chosen, Separation):
                self.command.show_separation(chosen, self._facts)
            else:
                self.command.show_profile(chosen, self._facts)
        except WorkbenchError as error:
            self.command.show_error(error)
        self.profiles.show_chosen(chosen, self.engines.is_running(self._side))

    # -- inside

    async def _look_around(self) -> None:
        """What models, device and engine there are."""
        folders = (*self.settings.library, *(Path(path) for path in self.settings.recent))
        found, devices = await asyncio.gather(
            asyncio.to_thread(folder.scan, folders), asyncio.to_thread(capacity.devices)
        )
        for form in self.forms.values():
            form.show_library([model.folder for model in found if isinstance(model, Model) and model.can_serve])
        self._drafts.show_library(found)
        self.show_devices(devices)
        try:
            self.show_facts(await facts.ask(self.settings.interpreter))
        except WorkbenchError as error:
            self._facts_error = error
        self.touch()

    def _is_remote(self, side: str) -> bool:
        return self.remotes.is_chosen(side)

    def _on_source(self) -> None:
        self.view.arrange()
        for side in SIDES:
            model = self.slots[side].model
            self.tabs[side].show_model(model.name if model and not self._is_remote(side) else "")
        self.touch()

    def _choose(self, side: str) -> None:
        self._side = side
        self.view.choose(side)
        self.touch()

    def _on_filled(self, side: str) -> None:
        model = self.slots[side].model
        self.tabs[side].show_model(model.name if model else "")
        self.cards[side].show_model(model)

    def _on_weighed(self, side: str) -> None:
        self._drafts.ask(side, self.slots[side].model)
        self.touch()

    def _is_filled(self, side: str) -> bool:
        """Whether the slot has something to start or to connect to."""
        return self.remotes.is_filled(side) if self._is_remote(side) else self.slots[side].is_filled

    def _chosen(self, side: str) -> Profile | Separation | None:
        """What a start of the slot would start; what is wrong with it is told."""
        try:
            chosen = self.slots[side].chosen()
            self._separations.check(side)
        except WorkbenchError as error:
            self.notices.tell(error)
            return None
        return chosen

    def _shorten(self, side: str, length: int) -> None:
        try:
            self.slots[side].shorten(length)
        except WorkbenchError as error:
            self.notices.tell(error)

    def _retry(self, side: str, length: int) -> None:
        if length:
            self._shorten(side, length)
        self.start_one(side)

    def _tick(self) -> None:
        if any(self.engines.state(side) in ("starting", "stopping", "waiting") for side in SIDES):
            self.touch()
