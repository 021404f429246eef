"""The engines that the window runs: one for the original, one for the quantized."""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.tasks import Tasks
from workbench.admission import Smaller
from workbench.core_events import BlockMap, RequestsDone, StepsDone
from workbench.engine import apart, monitor, plugin_words, remote, serve, served, together
from workbench.engine.endpoint import Endpoint
from workbench.engine.idle import Idle
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.engine_events import EngineConnected, EngineLog, EnginePhase, EngineReady, EngineSample
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed, LegEvent, Stage
from workbench.runs import EngineRun
from workbench.settings import Settings
from workbench.words import Sentence

SIDES = ("original", "quantized")
FIGURES = EngineSample | BlockMap | StepsDone | RequestsDone
Chosen = Profile | Separation | Endpoint


class Engines(QObject):
    """Starts and ends engines by side, "original" (blue) or "quantized" (amber), and keeps what each is now.

    A side may be one engine of a Profile, the engines of a Separation with a front, or a server that somebody else runs
    at an Endpoint. `pair_note` says how the last pair was started.
    """

    changed = Signal(str)  # an event of this side's engine came
    sampled = Signal(str)  # its figures came
    reduced = Signal(str)  # it starts in a smaller form, which is its profile now
    unloaded = Signal(str, int)  # it was idle for these minutes and is being ended

    def __init__(self, settings: Settings, tasks: Tasks, parent: QObject | None = None):
        super().__init__(parent)
        self.pair_note: Sentence | None = None
        self._settings = settings
        self._owner = tasks
        self._runs = {side: EngineRun() for side in SIDES}
        self._chosen: dict[str, Chosen] = {}
        self._logs: dict[str, Path] = {}
        self._serving: dict[str, list[asyncio.Task]] = {side: [] for side in SIDES}  # the last is the present one
        self._watching: dict[str, asyncio.Task] = {}
        self._heard_s: dict[str, float] = {}
        self._next: tuple[str, Chosen] | None = None  # starts when the other side has loaded
        self._alternating = False
        self._past: set[str] = set()  # sides that show an engine of an earlier run
        self._held_back: set[str] = set()  # sides whose engine waits for memory
        self._idle: dict[str, Idle] = {}

    def run(self, side: str) -> EngineRun:
        return self._runs[side]

    def state(self, side: str) -> str:
        """stopped, waiting (for the other side or for memory), starting, ready, stopping or failed."""
        if side in self._past:
            return self._runs[side].state
        if alive := self._alive(side):
            if alive[-1].cancelling():
                return "stopping"
            if self._runs[side].state == "failed" and len(alive) == 1:
                return "failed"  # what is left of it is still being ended
            if side in self._held_back:
                return "waiting"
            return "ready" if self._runs[side].state == "ready" else "starting"
        if self._next and self._next[0] == side:
            return "waiting"
        # An engine whose process is gone is not ready, whatever its last event was.
        return "failed" if self._runs[side].state == "failed" else "stopped"

    def is_running(self, side: str) -> bool:
        """Whether a process of this side lives or is about to."""
        return self.state(side) not in ("stopped", "failed")

    def chosen(self, side: str) -> Chosen | None:
        """What the side was last started with."""
        return self._chosen.get(side)

    def profile(self, side: str) -> Profile | None:
        """The profile of that: of several engines the one that writes the answers; None where others started it."""
        chosen = self._chosen.get(side)
        if isinstance(chosen, Separation):
            return chosen.decode[0].profile
        return chosen if isinstance(chosen, Profile) else None

    def separation(self, side: str) -> Separation | None:
        """The engines that the side was last started with, where prefill and decode are apart."""
        chosen = self._chosen.get(side)
        return chosen if isinstance(chosen, Separation) else None

    def server(self, side: str) -> Endpoint | None:
        """The server that the side was last connected to, where somebody else runs it."""
        chosen = self._chosen.get(side)
        return chosen if isinstance(chosen, Endpoint) else None

    def endpoint(self, side: str) -> Endpoint | None:
        """Where the side's engine answers; None unless it is ready."""
        run = self._runs[side]
        if self.state(side) != "ready":
            return None
        if run.connected:
            return remote.endpoint_of(run.connected)
        return Endpoint(run.ready.url, run.ready.key, run.ready.model) if run.ready else None

    def log_file(self, side: str) -> Path | None:
        return self._logs.get(side)

    def silent_s(self, side: str) -> float:
        """Seconds since the engine last said anything."""
        return time.monotonic() - self._heard_s.get(side, time.monotonic())

    def show_past(self, side: str, profile: Profile, events: Iterable[Event]) -> None:
        """Show an engine that has ended as it was: the state that its events left, without a process."""
        run = EngineRun()
        for event in events:
            run.apply(event)
        self._runs[side], self._chosen[side] = run, profile
        self._past.add(side)
        self.changed.emit(side)

    def start(self, side: str, chosen: Chosen) -> None:
        """Start `chosen` on this side; what runs there is ended first."""
        assert side in SIDES, side
        self._past.discard(side)
        if self._next and self._next[0] == side:
            self._next = None
        before = self._cancelled(side)
        self._chosen[side] = chosen
        if not before:
            self._runs[side] = EngineRun()
        # Those that still end stay listed: nobody may start before their memory is free.
        self._serving[side] = [*before, self._owner.start(self._serve(side, chosen, before))]
        self._heard_s[side] = time.monotonic()
        self.changed.emit(side)

    def clear(self, side: str) -> None:
        """Forget what ran on a side where nothing runs."""
        if not self.is_running(side):
            self._runs[side] = EngineRun()
            self._chosen.pop(side, None)
            self.changed.emit(side)

    def start_pair(self, original: Chosen, quantized: Chosen) -> None:
        """Start both: together where they fit, else the original first; `pair_note` then says which it is."""
        self._owner.start(self._start_pair(original, quantized))

    def stop(self, side: str) -> None:
        """End this side's engine; its state tells when it is gone."""
        if self._next:
            self._next = None
        self._cancelled(side)
        self.changed.emit(side)

    async def stop_all(self) -> None:
        """End every engine; returns when their processes are gone."""
        for side in SIDES:
            self.stop(side)
        if ending := [task for side in SIDES for task in self._alive(side)]:
            await asyncio.wait(ending)

    def can_switch(self, side: str) -> bool:
        """Whether this side waits for its turn because a pair does not fit beside each other."""
        return self._alternating and side in self._chosen and not self.is_running(side)

    async def switch(self, side: str, chosen: Chosen | None = None) -> None:
        """End the other side's engine, then start this one: with `chosen`, or as it was last started."""
        chosen = chosen or self._chosen[side]
        await self.stop_all()
        self.start(side, chosen)

    async def _start_pair(self, original: Chosen, quantized: Chosen) -> None:
        await self.stop_all()
        self._chosen = {"original": original, "quantized": quantized}
        if isinstance(original, Separation) or isinstance(quantized, Separation):
            self.pair_note, self._alternating = None, False
            self._next = ("quantized", quantized)  # vLLM measures the free memory while it loads
            self.start("original", original)
            return
        plan = await asyncio.to_thread(together.of_profiles, original, quantized)
        self.pair_note = plan.note
        self._alternating = plan.order == "one at a time"
        original, quantized = plan.shared((original, quantized))
        if plan.order == "at once":
            self.start("quantized", quantized)
        elif plan.order == "in turn":
            self._next = ("quantized", quantized)
        self.start("original", original)

    def _alive(self, side: str) -> list[asyncio.Task]:
        return [task for task in self._serving[side] if not task.done()]

    def _cancelled(self, side: str) -> list[asyncio.Task]:
        """What serves this side, told to end; its figures end at once, for while it ends it answers no more."""
        if watching := self._watching.pop(side, None):
            watching.cancel()
        alive = self._alive(side)
        for task in alive:
            task.cancel()
        return alive

    async def _serve(self, side: str, chosen: Chosen, before: list[asyncio.Task]) -> None:
        if before:
            await asyncio.wait(before)
        self._runs[side] = EngineRun()
        if not isinstance(chosen, Endpoint):
            self._logs[side] = served.log_file(side)
        try:
            if isinstance(chosen, Endpoint):
                self._logs.pop(side, None)
                await remote.attend(chosen, lambda event: self._take(side, event))
                return
            await self._run(side, chosen)
        except WorkbenchError as error:
            if self._runs[side].state != "failed":
                self._take(side, Failed(error.message, error.hint_template, error.values))
        finally:
            self._held_back.discard(side)
            if watching := self._watching.pop(side, None):
                watching.cancel()
            # The state follows the end of this task, which comes after this line.
            asyncio.get_running_loop().call_soon(self._after, side)

    async def _run(self, side: str, chosen: Profile | Separation) -> None:
        take, log = partial(self._take, side), self._logs[side]
        if isinstance(chosen, Separation):
            await apart.serve_separated(chosen, self._settings, take, log, self._owner.ask)
            return
        try:
            await serve.serve(chosen, self._settings, take, log, ask=self._owner.ask)
        except Smaller as smaller:
            self._chosen[side] = smaller.offer.value
            self.reduced.emit(side)
            await self._run(side, smaller.offer.value)

    def _take(self, side: str, event: Event) -> None:
        run = self._runs[side]
        run.apply(event)
        own = event.event if isinstance(event, LegEvent) else event
        if isinstance(own, Stage):  # the only part of an engine's way that is told so: it waits for memory
            self._held_back.add(side)
        elif isinstance(own, EnginePhase):
            self._held_back.discard(side)
        if isinstance(own, EngineLog | EnginePhase):
            self._heard_s[side] = time.monotonic()
        if isinstance(event, EngineLog) and (note := plugin_words.note(event.text)) and note not in run.notes:
            run.apply(note)
        if isinstance(event, EngineReady):
            self._idle[side] = Idle()
            if self.separation(side) is None:  # a front has no figures, its engines tell theirs themselves
                endpoint = Endpoint(event.url, event.key, event.model)
                self._watch(side, run, endpoint)
            self._start_next(side)
        if isinstance(event, EngineConnected) and event.has_metrics:
            self._watch(side, run, remote.endpoint_of(event))
        (self.sampled if isinstance(own, FIGURES) else self.changed).emit(side)
        if isinstance(event, LegEvent) and isinstance(own, EngineSample):
            self._rest(side, own, event.leg)

    def _watch(self, side: str, run: EngineRun, endpoint: Endpoint) -> None:
        self._watching[side] = self._owner.start(
            monitor.watch(endpoint, lambda sample: self._take_sample(side, run, sample))
        )

    def _take_sample(self, side: str, run: EngineRun, event: EngineSample) -> None:
        if run is self._runs[side]:
            run.apply(event)
            self.sampled.emit(side)
            self._rest(side, event)

    def _rest(self, side: str, sample: EngineSample, leg: str = "") -> None:
        """End an engine of ours, or all of a separation, that had nothing to do for as long as the settings say."""
        if not self.profile(side) or self.state(side) != "ready":
            return
        minutes, idle_s = self._settings.unload_idle, self._idle[side].seconds(sample, leg)
        if minutes > 0 and idle_s >= 60 * minutes:
            self.unloaded.emit(side, minutes)
            self.stop(side)

    def _after(self, side: str) -> None:
        if self._runs[side].state == "failed":
            self._start_next(side)
        self.changed.emit(side)

    def _start_next(self, loaded: str) -> None:
        """The side that waited for `loaded` to be ready, or to have failed, has its turn."""
        if self._next and self._next[0] != loaded:
            self.start(*self._next)
