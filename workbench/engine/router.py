"""The router in front of prefill and decode engines, as a child: started, proved to hand prompts over, watched."""

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from workbench import process
from workbench.engine import handover, monitor, sockets
from workbench.engine.client import refused
from workbench.engine.command import HOST
from workbench.engine.endpoint import Endpoint
from workbench.engine.facts import EngineFacts
from workbench.engine.separation import label, role_of
from workbench.engine_events import EngineLog, EnginePhase, EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event, Note

POLL_S = 0.1
START_S = 60.0
WARMUP_LIMIT_S = 120.0
ENDED_S = 30.0
KEPT_LINES = 40
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WARMUP_TRIES = 3
WORDS = "one two three four five six seven eight"


class Router:
    """One run of the router before the engines at `endpoints`, by the names of their legs; `model` is their name."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        port: int,
        facts: EngineFacts,
        on_event: Callable[[Event], None],
        log: Path,
    ):
        self.endpoints = endpoints
        self.port = port or sockets.free_port()
        self.model = next(iter(endpoints.values())).model
        self.key = next((endpoint.key for endpoint in endpoints.values() if endpoint.key), "")
        urls = {name: endpoint.root for name, endpoint in endpoints.items()}
        figures_port = sockets.free_port({self.port})
        self.command = handover.router(urls, self.port, figures_port, self.key, facts.python)
        self.on_event = on_event
        self.log = log
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.guard_pid = 0

    async def run(self, started_s: float) -> None:
        """Until it ended, which was not asked for: a WorkbenchError then. Ready `seconds` count from `started_s`."""
        running = asyncio.create_task(
            process.run(
                self.command.argv,
                env={**os.environ, **self.command.env},
                log=self.log,
                merge_stderr=True,
                on_line=self._on_line,
                on_start=self._on_start,
            )
        )
        opening = asyncio.create_task(self._open(started_s))
        try:
            await asyncio.wait([running, opening], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                opening.result()
            await running
        except process.ProcessEnded as ended:
            raise self._ended(ended.code) from None
        finally:
            for task in (opening, running):
                task.cancel()
                await process.outlast(task, ENDED_S)
        raise self._ended(0)

    def _ended(self, code: int) -> WorkbenchError:
        last = next((line for line in reversed(self.lines) if line.strip()), "–")
        return WorkbenchError(
            "The router ended with status {code}: {line}", "Start it again. Its log has the rest.", code=code, line=last
        )

    def _on_start(self, pid: int) -> None:
        self.guard_pid = pid

    def _on_line(self, line: str) -> None:
        line = COLOURS.sub("", line)
        self.lines.append(line)
        self.on_event(EngineLog(line))

    async def _open(self, started_s: float) -> None:
        """Report it as ready when it listens and prompts went through all engines, then only let it run."""
        url = f"http://{HOST}:{self.port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=WARMUP_LIMIT_S) as client:
            pid = await self._listening(client)
            loaded_s = time.monotonic()
            self.on_event(EnginePhase("warmup", loaded_s))
            warmup_s = await self._warm_up(client)
        # The key is for its list of models alone, which it asks an engine for with the client's own key.
        self.on_event(EngineReady(url, self.key, self.model, pid, loaded_s - started_s, warmup_s))
        await asyncio.Event().wait()

    async def _listening(self, client: httpx.AsyncClient) -> int:
        """The process that listens, once it answers; it is a child of ours."""
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            await asyncio.sleep(POLL_S)
            with suppress(httpx.HTTPError):
                answer = await client.get("/liveness", timeout=1.0)
                if answer.status_code == 200 and (pid := sockets.owner(self.port, self.guard_pid)):
                    return pid
        raise WorkbenchError("The router does not answer.", "Start it again. Its log tells more.")

    async def _warm_up(self, client: httpx.AsyncClient) -> float | None:
        """Seconds of short requests through every engine, None when one failed; says so when nothing is handed over."""
        decoding = {name: each for name, each in self.endpoints.items() if role_of(name) == "decode"}
        before = await _external(decoding)
        began_s = time.monotonic()
        bodies = [
            {"model": self.model, "prompt": f"{number} {WORDS}", "max_tokens": 4, "temperature": 0}
            for number in range(max(len(decoding), len(self.endpoints) - len(decoding)))
        ]
        try:
            # At once, so that the router spreads them. On a busy machine the engines' first contact can time out, which
            # the next request makes again: better this one than the user's.
            for number in range(WARMUP_TRIES):
                await asyncio.sleep(number * handover.HEALTH_S)  # an engine that missed a check is asked again by then
                replies = await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))
                if all(reply.status_code == 200 for reply in replies):
                    break
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            self.on_event(Note("The warm-up request failed: {reason}", {"reason": reason}, "warning"))
            return None
        if reply := next((reply for reply in replies if reply.status_code != 200), None):
            failed = refused(reply.status_code, reply.text)
            self.on_event(Note(failed.message, failed.values, "warning"))
            return None
        taken_s = time.monotonic() - began_s
        after = await _external(decoding)
        for name in decoding:
            if before[name] is not None and after[name] == before[name]:
                self.on_event(
                    Note("The {leg} was handed no prompt: it reads them itself.", {"leg": label(name)}, "warning")
                )
        return taken_s


async def _external(endpoints: Mapping[str, Endpoint]) -> dict[str, float | None]:
    """How many prompt tokens came to each engine from another one; None where it does not tell."""
    found = {}
    for name, endpoint in endpoints.items():
        async with endpoint.open(timeout=5.0) as http:
            found[name] = (await monitor.sampled(http)).external_tokens
    return found
