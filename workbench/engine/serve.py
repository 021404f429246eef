"""Runs one engine: from its profile to a server that proved to be ours, and to its end."""

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx

from workbench import admission, guard, process
from workbench.admission import Ask
from workbench.engine import (
    command,
    drafts,
    facts,
    formats,
    health,
    monitor,
    needs,
    parallel,
    plugin_words,
    room,
    sockets,
    start,
    starts_kept,
    taken,
    tap,
)
from workbench.engine.causes import cause, cause_line
from workbench.engine.printed import Printed
from workbench.engine.profile import Profile
from workbench.engine.speculation import NAMES
from workbench.errors import WorkbenchError
from workbench.events import (
    EngineLog,
    EngineMemory,
    EnginePhase,
    EngineReady,
    EngineStopped,
    Event,
    Failed,
    Note,
    StartExpected,
    UsageOnly,
)
from workbench.settings import Settings

POLL_S = 0.25
SILENCE_S = 30.0
STRANGER_S = 5.0
STOPPED_S = 30.0
WARMUP_LIMIT_S = 120.0
KEPT_LINES = 2000  # a refusal stands above some hundred lines of tracebacks
SHOWN_LINES = 40

# What vLLM prints on a GPU of its choice; the second form when the profile made it.
ATTENTION = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention backend out of|backend\.$)")


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

    try:
        seen = (env or {}).get("CUDA_VISIBLE_DEVICES", "")
        needed = await asyncio.to_thread(needs.of, profile, settings.interpreter, seen)
        smaller = partial(needs.smaller, profile, settings.interpreter)
        async with admission.place("engine", profile.model.name, needed, ask, on_event, smaller) as begun:
            engine = await _prepared(profile, settings, tell, log, key or secrets.token_urlsafe(24), env or {})
            engine.on_begun = begun
            on_event(StartExpected(starts_kept.expected(profile, settings.interpreter)))
            failed = await engine.run()
    except WorkbenchError as error:  # before it started
        failed = Failed(error.message, error.hint_template, error.values)
        on_event(failed)
    except asyncio.CancelledError:
        on_event(EngineStopped())
        raise
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
        parallel.check_devices(profile, known, await asyncio.to_thread(parallel.gpus))
    device = await asyncio.to_thread(room.device_of, known)
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
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.printed = Printed()
        self.remember: Callable[[EngineMemory, int], EngineMemory] = lambda memory, pid: memory
        self.course = start.Course()
        self.notes: list[Note] = []
        self.started_s = self.heard_s = time.monotonic()
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
            if not running.done():
                watching.result()
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
        sentence, hint = cause(self.lines, code)
        details = "\n".join([cause_line(self.lines), "", *list(self.lines)[-SHOWN_LINES:]]).strip()
        values = {**sentence.values, **hint.values} | ({} if code is None else {"code": code})
        failed = Failed(sentence.template, hint.template, values, details)
        self.on_event(failed)
        return failed

    def _on_start(self, pid: int) -> None:
        self.guard_pid = pid
        self.on_begun(pid)

    def _on_line(self, line: str) -> None:
        self.heard_s = time.monotonic()
        self.lines.append(line)
        for note in filter(None, (plugin_words.note(line), _attention(line))):
            if note not in self.notes:  # each worker says it
                self.notes.append(note)
                self.on_event(note)
        self.on_event(EngineLog(line))
        if usage_only := plugin_words.usage_only(line):
            self.on_event(usage_only)
        if memory := self.printed.take(line):
            self.on_event(memory)
        if phase := self.course.entered(line):
            self.on_event(EnginePhase(phase, self.heard_s))

    async def _watch(self) -> None:
        """Poll until the server proved to be ours, warm it up, and return when it has died.

        Until then say when it is silent, or a stranger answers.
        """
        told_silence_s = 0.0
        answered_s = None
        async with httpx.AsyncClient(
            base_url=f"http://{command.HOST}:{self.port}", trust_env=False, timeout=httpx.Timeout(5.0, connect=1.0)
        ) as client:
            while True:
                await asyncio.sleep(POLL_S)
                now_s = time.monotonic()
                if await health.answers(client):
                    if await self._is_ours(client):
                        await self._become_ready(client)
                        return await health.death(client)
                    if answered_s is None:
                        answered_s = now_s
                    elif now_s - answered_s > STRANGER_S:
                        answered_s = float("inf")  # once is enough
                        self._warn_of_stranger()
                silent_s = now_s - self.heard_s
                if silent_s < SILENCE_S:
                    told_silence_s = 0.0
                elif silent_s - told_silence_s >= SILENCE_S:
                    told_silence_s = silent_s
                    self.on_event(Note("Still loading, no output for {seconds} s.", {"seconds": int(silent_s)}))

    def _warn_of_stranger(self) -> None:
        self.on_event(
            Note("Something answers on port {port}, but it is not this engine.", {"port": self.port}, level="warning")
        )

    async def _is_ours(self, client: httpx.AsyncClient) -> bool:
        """It lists the name of this run to our key, and refuses a request without it."""
        with suppress(httpx.HTTPError, ValueError, LookupError, TypeError):
            listed = await client.get("/v1/models", headers=self._authorization())
            names = {model["id"] for model in listed.json()["data"]}
            if command.proof_name(self.key) in names:
                return (await client.get("/v1/models")).status_code == 401
        return False

    async def _become_ready(self, client: httpx.AsyncClient) -> None:
        loaded_s = time.monotonic()
        self.on_event(EnginePhase("warmup", loaded_s))
        warmup_s = await self._warm_up(client)
        if not self.tap.heard and not any(map(plugin_words.usage_only, self.lines)):
            self.on_event(
                UsageOnly("The engine reports no blocks: Lathe's plugin is missing there, failed, or runs elsewhere.")
            )
        if self.printed.memory != EngineMemory():
            self.on_event(await asyncio.to_thread(self.remember, self.printed.memory, self.guard_pid))
        self.on_event(await monitor.sampled(client))  # what the warm-up counted is not the user's
        pid = sockets.owner(self.port, self.guard_pid) or next(iter(guard.children(self.guard_pid)), self.guard_pid)
        url = f"http://{command.HOST}:{self.port}"
        self.on_event(EngineReady(url, self.key, self.name, pid, loaded_s - self.started_s, warmup_s))

    async def _warm_up(self, client: httpx.AsyncClient) -> float | None:
        """Seconds of a first short request, which is several times slower than the next; None when it failed."""
        body = {"model": self.name, "prompt": "one two three one two three one two", "max_tokens": 8, "temperature": 0}
        began_s = time.monotonic()
        try:
            reply = await client.post(
                "/v1/completions", json=body, headers=self._authorization(), timeout=WARMUP_LIMIT_S
            )
            reply.raise_for_status()
        except httpx.HTTPError as error:
            self.on_event(Note("The warm-up request failed: {reason}", {"reason": str(error)}, "warning"))
            return None
        return time.monotonic() - began_s

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


def _attention(line: str) -> Note | None:
    """The attention backend that the engine really uses, where it says so."""
    found = ATTENTION.search(line)
    return Note("Attention backend: {name}", {"name": found[1]}) if found else None
