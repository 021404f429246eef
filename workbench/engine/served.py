"""An engine for the length of a `with` block, and a pair of engines asked one after the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench import admission, paths
from workbench.admission import Ask
from workbench.engine import monitor, serve, together
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Profile
from workbench.engine_events import EngineReady
from workbench.events import Event
from workbench.settings import Settings
from workbench.words import Sentence


@asynccontextmanager
async def served(
    profile: Profile, settings: Settings, on_event: Callable[[Event], None], name: str = "engine"
) -> AsyncIterator[Endpoint]:
    """Start the engine, yield where it answers, report its figures once a second, end it after the block.

    The events are those of `serve` and `monitor.watch`. Raises WorkbenchError when the engine does not become ready.
    """
    async with opened(lambda take: watched(profile, settings, take, log_file(name)), on_event) as endpoint:
        yield endpoint


@asynccontextmanager
async def opened(
    start: Callable[[Callable[[Event], None]], Coroutine[Any, Any, None]], on_event: Callable[[Event], None]
) -> AsyncIterator[Endpoint]:
    """As `served`, for whatever `start` runs and reports as ready to the function that it is given."""
    ready: asyncio.Future[EngineReady] = asyncio.get_running_loop().create_future()

    def take(event: Event) -> None:
        on_event(event)
        if isinstance(event, EngineReady) and not ready.done():
            ready.set_result(event)

    serving = asyncio.ensure_future(start(take))
    try:
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await serving
            raise AssertionError("serve returned without an engine and without an error")
        event = ready.result()
        yield Endpoint(event.url, event.key, event.model)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def watched(
    profile: Profile, settings: Settings, on_event: Callable[[Event], None], log: Path, ask: Ask = admission.anyway
) -> None:
    """As `serve`, with the engine's figures once a second from when it is ready."""
    watching: asyncio.Task | None = None

    def take(event: Event) -> None:
        nonlocal watching
        on_event(event)
        if isinstance(event, EngineReady):
            watching = asyncio.ensure_future(monitor.watch(Endpoint(event.url, event.key, event.model), on_event))

    serving = asyncio.ensure_future(serve.serve(profile, settings, take, log, ask=ask))
    try:
        await asyncio.wait([serving])
    finally:  # at once: an engine that is being ended answers no more, which is no gap in its figures
        tasks = [task for task in (watching, serving) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    serving.result()


async def with_both(
    profiles: Mapping[str, Profile],
    settings: Settings,
    on_event: Callable[[str, Event], None],
    work: Callable[[str, Endpoint], Awaitable[None]],
) -> Sentence:
    """Call `work` with each side's engine, one side after the other, so that neither slows the other's figures.

    Both run together where they fit; else the first is ended before the second starts. Returns which it was.
    """
    chosen = await asyncio.to_thread(together.of_profiles, *profiles.values())
    if chosen.order == "one at a time":
        for side, profile in profiles.items():
            async with served(profile, settings, lambda event, side=side: on_event(side, event), side) as endpoint:
                await work(side, endpoint)
        return chosen.note
    first, _ = profiles
    first_ready, first_done, all_loaded, all_done = (
        asyncio.Event(),
        asyncio.Event(),
        asyncio.Barrier(2),
        asyncio.Barrier(2),
    )

    async def one(side: str, profile: Profile) -> None:
        if chosen.order == "in turn" and side != first:
            await first_ready.wait()
        async with served(profile, settings, lambda event: on_event(side, event), side) as endpoint:
            first_ready.set()
            await all_loaded.wait()  # an engine that still loads would slow the other's figures
            if side != first:
                await first_done.wait()
            await work(side, endpoint)
            first_done.set()
            await all_done.wait()  # and so would one that is ending

    try:
        async with asyncio.TaskGroup() as group:
            for side, profile in zip(profiles, chosen.shared(profiles.values()), strict=True):
                group.create_task(one(side, profile))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return chosen.note


def log_file(name: str) -> Path:
    """A new log file for an engine."""
    return paths.inside_home("engines") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}.log"
