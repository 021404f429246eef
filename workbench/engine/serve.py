"""Runs one engine: from its profile to a server that proved to be ours, and to its end."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx

from workbench import admission, guard, process
from workbench.admission import Ask
from workbench.catalog import devices
from workbench.core_events import UsageOnly
from workbench.engine import (
    command,
    drafts,
    ends,
    facts,
    formats,
    health,
    monitor,
    needs,
    parallel,
    readiness,
    room,
    sockets,
    start,
    starts_kept,
    taken,
    tap,
)
from workbench.engine.output import Output
from workbench.engine.profile import Profile
from workbench.engine.speculation import NAMES
from workbench.engine_events import EngineMemory, EnginePhase, EngineReady, EngineSample, StartExpected
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed, Note
from workbench.settings import Settings

STOPPED_S = 30.0
FIGURES_TRIES = 3
STATUS_S = 2.0  # more, and a death would be told later than 5 s after it


async def serve(
    profile: Profile,
    settings: Settings,
    on_event: Callable[[Event], None],
    log: Path,
    key: str = "",
    env: Mapping[str, str] | None = None,
    ask: Ask = admission.anyway,
) -> None:
    """Run the engine until it fails or this is cancelled; both end its whole process tree before it returns.

    A failure is reported as Failed, with `max_length` among its values where a shorter context would fit, and then
    raised. Cancelling reports EngineStopped. How long the phases of a start took is remembered and foretold.
    Without a `key` the engine gets a new one; `env` adds to its environment. `ask` is asked where others hold its
    memory; what that raises ends it before it began.
    """
    told: list[EnginePhase] = []

    def tell(event: Event) -> None:
        on_event(event)
        if isinstance(event, EnginePhase):
            told.append(event)
        elif isinstance(event, EngineReady):
            starts_kept.remember(profile, settings.interpreter, start.durations(told, event))

    with ends.told(on_event):
        seen = (env or {}).get("CUDA_VISIBLE_DEVICES", "")
        needed = await asyncio.to_thread(needs.of, profile, settings.interpreter, seen)
        smaller = partial(needs.smaller, profile, settings.interpreter)
        async with admission.place("engine", profile.model.name, needed, ask, on_event, smaller) as begun:
            engine = await _prepared(profile, settings, tell, log, key or secrets.token_urlsafe(24), env or {})
            engine.on_begun = begun
            on_event(StartExpected(starts_kept.expected(profile, settings.interpreter)))
            failed = await engine.run()
    raise WorkbenchError(failed.message, failed.hint, **failed.values)


async def _prepared(
    profile: Profile,
    settings: Settings,
    on_event: Callable[[Event], None],
    log: Path,
    key: str,
    env: Mapping[str, str],
) -> "_Engine":
    if not (profile.model / "config.json").is_file():
        raise WorkbenchError(
            "{folder} holds no model.", "Choose a folder with config.json and safetensors files.",
            folder=str(profile.model),
        )  # fmt: skip
    if profile.chat_template and not profile.chat_template.is_file():
        raise WorkbenchError(
            "There is no chat template at {path}.", "Choose another file, or leave it empty.",
            path=str(profile.chat_template),
        )  # fmt: skip
    if profile.port and not sockets.is_free(profile.port):
        raise WorkbenchError(
            "Port {port} is taken by another program.", "Choose another port, or 0 for a free one.", port=profile.port
        )
    port = profile.port or sockets.free_port()
    known = await facts.ask(settings.interpreter)
    formats.check(profile, known)
    if profile.devices > 1:
        found = await asyncio.to_thread(devices.devices)
        parallel.check_devices(profile, known, parallel.gpus(found, env.get("CUDA_VISIBLE_DEVICES", "")))
    device = await asyncio.to_thread(room.device_of, known, env.get("CUDA_VISIBLE_DEVICES", ""))
    if device:
        await asyncio.to_thread(room.check, profile, settings.interpreter, device)
    chosen, profile = profile, await asyncio.to_thread(drafts.settle, profile, known)
    if chosen.speculation != profile.speculation:
        values = {"name": profile.speculation.draft.name, "method": NAMES[profile.speculation.method]}
        on_event(Note("{name} is made for {method} and drafts that way.", values))
    if remark := parallel.remark(profile.executor, profile.ray_address):
        on_event(Note(remark.template, remark.values, "warning"))
    built = command.build(profile, port, key, known)
    built = replace(built, env={**built.env, **env})
    engine = _Engine(built, profile.served_name, port, key, on_event, log)
    if device:
        engine.remember = partial(taken.remembered, chosen, settings.interpreter, device)
    return engine


class _Engine:
    """One run of one command: what its child and its port tell, as events."""

    def __init__(
        self, built: command.Command, name: str, port: int, key: str, on_event: Callable[[Event], None], log: Path
    ):
        self.command = built
        self.name = name
        self.port = port
        self.key = key
        self.log = log
        self.on_event = on_event
        self.output = Output()
        self.remember: Callable[[EngineMemory, int], EngineMemory] = lambda memory, pid: memory
        self.started_s = time.monotonic()
        self.guard_pid = 0
        self.on_begun: Callable[[int], None] = lambda pid: None
        self.tap = tap.Listener(on_event)

    async def run(self) -> Failed:
        """Until it ended or died, which was not asked for: that is reported before what is left of it is ended."""
        self.on_event(EnginePhase("starting", self.started_s))
        running = asyncio.create_task(
            process.run(
                self.command.argv,
                env=command.environment(self.command) | {tap.SWITCH: tap.NAME},
                log=self.log,
                merge_stderr=True,
                on_line=self._on_line,
                on_start=self._on_start,
                on_folder=self.tap.open,
            )
        )
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
            if not running.done() and not watching.result():  # its status comes when the rest of its tree is ended
                await asyncio.wait([running], timeout=STATUS_S)
            if not running.done():
                return self._fail(None)
            await running
            return self._fail(0)
        except process.ProcessEnded as ended:
            return self._fail(ended.code)
        finally:
            for task in (watching, running):
                task.cancel()
                await process.outlast(task, STOPPED_S)
            self.tap.close()

    def _fail(self, code: int | None) -> Failed:
        """Report why it ended with this status, or None: why it answers no more."""
        failed = self.output.failed(code)
        self.on_event(failed)
        return failed

    def _on_start(self, pid: int) -> None:
        self.guard_pid = pid
        self.on_begun(pid)

    def _on_line(self, line: str) -> None:
        for event in self.output.read(line):
            self.on_event(event)

    async def _watch(self) -> bool:
        """Until it was ready, and has died; whether its server still answers."""
        url = f"http://{command.HOST}:{self.port}"
        limits = httpx.Timeout(5.0, connect=1.0)
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=limits) as client:
            await readiness.until_ours(client, self.port, self.key, self.output, self.on_event)
            await self._become_ready(client, url)
            return await health.death(client)

    async def _become_ready(self, client: httpx.AsyncClient, url: str) -> None:
        loaded_s = time.monotonic()
        self.on_event(EnginePhase("warmup", loaded_s))
        warmup_s = await readiness.warm_up(client, self.key, self.name, self.on_event)
        if not self.tap.heard and not self.output.usage_only:
            self.on_event(
                UsageOnly("The engine reports no blocks: Lathe's plugin is missing there, failed, or runs elsewhere.")
            )
        if self.output.memory != EngineMemory():
            self.on_event(await asyncio.to_thread(self.remember, self.output.memory, self.guard_pid))
        for _ in range(FIGURES_TRIES):  # what the warm-up counted is not the user's: without these figures it would be
            counted = await monitor.sampled(client)
            if counted != EngineSample(counted.at_s):
                break
        self.on_event(counted)
        pid = sockets.owner(self.port, self.guard_pid) or next(iter(guard.children(self.guard_pid)), self.guard_pid)
        self.on_event(EngineReady(url, self.key, self.name, pid, loaded_s - self.started_s, warmup_s))
