"""Runs prefill and decode apart: the engines of both kinds, the router in front of them, and their end."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from workbench import admission, ledger
from workbench.admission import Ask, Conflict
from workbench.catalog.devices import devices
from workbench.engine import attached, ends, facts, handover, monitor, serve, sockets
from workbench.engine import separation as separations
from workbench.engine.endpoint import Endpoint
from workbench.engine.facts import EngineFacts
from workbench.engine.router import Router
from workbench.engine.separation import Leg, Separation
from workbench.engine_events import EnginePhase, EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed, LegEvent
from workbench.settings import Settings
from workbench.words import Sentence

# What running engines tell of themselves and must agree on.
TOLD = {
    "name": Sentence("Served name"),
    "folder": Sentence("The model's folder"),
    "version": Sentence("vLLM's version"),
}


async def serve_separated(
    separation: Separation,
    settings: Settings,
    on_event: Callable[[Event], None],
    log: Path,
    ask: Ask = admission.anyway,
) -> None:
    """Run all legs and their front until one of them fails or this is cancelled; both end every process of ours.

    What a leg tells comes as LegEvent, its figures once a second among that; its log lies beside `log`. The front is
    ready when a prompt went through it; it answers without a key and lists its models for the engines'. When a leg
    fails, the front fails with its cause. `ask` is asked where others hold a leg's memory.
    """
    on_event(EnginePhase("starting", time.monotonic()))
    ledger.stand_together()
    with ends.told(on_event):
        front = await _prepared(separation, settings, on_event, log)
        front.ask = ask
        failed = await front.run()
    raise WorkbenchError(failed.message, failed.hint, **failed.values)


async def _prepared(
    separation: Separation, settings: Settings, on_event: Callable[[Event], None], log: Path
) -> "_Front":
    if separation.port and not sockets.is_free(separation.port):
        raise WorkbenchError(
            "Port {port} is taken by another program.", "Choose another port, or 0 for a free one.",
            port=separation.port,
        )  # fmt: skip
    known = await facts.ask(settings.interpreter)
    if error := handover.missing(known):
        raise error
    there = await asyncio.to_thread(devices)
    for problem in await asyncio.to_thread(separations.problems, separation, there):
        raise WorkbenchError(problem.template, "Change that, then start again.", **problem.values)
    settled = await asyncio.to_thread(separations.settled, separation, there)
    return _Front(settled, separations.in_turn(separation, there), settings, known, on_event, log)


class _Front:
    """One run of all legs and the router."""

    def __init__(
        self,
        separation: Separation,
        in_turn: bool,
        settings: Settings,
        known: EngineFacts,
        on_event: Callable[[Event], None],
        log: Path,
    ):
        self.separation = separation
        self.in_turn = in_turn
        self.settings = settings
        self.facts = known
        self.on_event = on_event
        self.log = log
        self.key = separation.key or secrets.token_urlsafe(24)
        self.legs = separation.legs()
        self.ready: dict[str, asyncio.Future[EngineReady]] = {}
        self.failed: Failed | None = None
        self.ask: Ask = admission.anyway
        self.whole = asyncio.current_task()

    async def run(self) -> Failed:
        """Until a part failed, which is reported before the others are ended."""
        loop = asyncio.get_running_loop()
        started_s = time.monotonic()
        self.ready = {name: loop.create_future() for name in self.legs}
        taken: set[int] = set()
        try:
            async with asyncio.TaskGroup() as group:
                for name, leg in self.legs.items():
                    group.create_task(self._leg(name, leg, _side_port(leg, taken)))
                    if self.in_turn:
                        await self.ready[name]
                endpoints = {name: _endpoint(await ready) for name, ready in self.ready.items()}
                await self._check(endpoints)
                for name, endpoint in endpoints.items():
                    group.create_task(monitor.watch(endpoint, partial(self._tell, name)))
                router = Router(endpoints, self.separation.port, self.facts, self.on_event, self.log)
                await router.run(started_s)
        except* WorkbenchError as failures:
            self._fail(failures.exceptions[0])
        return self.failed

    async def _leg(self, name: str, leg: Leg, side_port: int) -> None:
        def tell(event: Event) -> None:
            self._tell(name, event)
            if isinstance(event, EngineReady):
                self.ready[name].set_result(event)

        try:
            if leg.profile is None:
                await attached.follow(Endpoint(leg.url, self.separation.key), tell)
                return
            profile = handover.connected(leg.profile, separations.role_of(name), self.facts)
            env = handover.environment(leg, side_port, self.facts)
            log = self.log.with_name(f"{self.log.stem}-{name.replace(' ', '-')}.log")
            await serve.serve(profile, self.settings, tell, log, self.key, env, self._asked)
        except WorkbenchError as error:
            told = {"leg": separations.label(name), "cause": Sentence(error.message, error.values)}
            self._fail(WorkbenchError("The {leg} failed: {cause}", error.hint_template, **(error.values | told)))
            raise

    async def _asked(self, conflict: Conflict) -> str:
        """A smaller leg would not match the others, and where one is not to be started none is."""
        conflict.smaller = None
        try:
            return await self.ask(conflict)
        except asyncio.CancelledError:
            self.whole.cancel()
            raise

    async def _check(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Raise a WorkbenchError where running engines cannot use the others' cache, as far as they tell."""
        if all(leg.profile for leg in self.legs.values()):
            return
        served = {name: await attached.ask(endpoint) for name, endpoint in endpoints.items()}
        first, *others = served
        for name in others:
            for field, what in TOLD.items():
                one, other = getattr(served[first], field), getattr(served[name], field)
                if one and other and one != other:
                    raise separations.differing(what, first, name)

    def _tell(self, name: str, event: Event) -> None:
        self.on_event(LegEvent(name, event))

    def _fail(self, error: WorkbenchError) -> None:
        """Report the first failure; what fails after it fails because of it."""
        if self.failed is None:
            self.failed = Failed(error.message, error.hint_template, error.values)
            self.on_event(self.failed)


def _endpoint(ready: EngineReady) -> Endpoint:
    return Endpoint(ready.url, ready.key, ready.model)


def _side_port(leg: Leg, taken: set[int]) -> int:
    """The first of as many free ports in a row as the engine has data parallel parts, which take one each."""
    count = leg.profile.data_parallel if leg.profile else 0
    while True:
        first = sockets.free_port(taken)
        row = range(first, first + count)
        if not taken.intersection(row) and all(map(sockets.is_free, row)):
            taken.update(row)
            return first
