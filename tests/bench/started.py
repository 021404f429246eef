"""Engines that a bench starts by the product's own code, with their state, and what is known where one fails."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from workbench import settings
from workbench.engine import apart, serve
from workbench.engine.client import Endpoint
from workbench.engine.profile import Profile
from workbench.engine.separation import Leg, Separation
from workbench.events import EngineReady, Event, Failed, Note
from workbench.runs import EngineRun

START_S = 130.0


class Engines:
    """What `start` runs, with its state; ends with `stop`."""

    def __init__(self, name: str, folder: Path, start: Callable[..., Coroutine[Any, Any, None]]):
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        self.run = EngineRun()
        self.failed = asyncio.Event()
        self.limit_s = START_S
        self.began_s = time.monotonic()
        self._ready: asyncio.Future[EngineReady] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.ensure_future(start(settings.load(), self._take, self.log))

    def _take(self, event: Event) -> None:
        self.run.apply(event)
        if isinstance(event, Note):
            print(f"  {self.name}: {event.level}: {event.message.format(**event.values)}", flush=True)
        if isinstance(event, EngineReady):
            print(f"  {self.name}: ready after {time.monotonic() - self.began_s:.1f} s", flush=True)
            self._ready.set_result(event)
        if isinstance(event, Failed):
            print(f"  {self.name}: failed: {event.message.format(**event.values)}", flush=True)
            self.failed.set()

    async def ready(self) -> EngineReady:
        """Where it answers; raises what it failed with, or that it takes too long."""
        left_s = self.limit_s - (time.monotonic() - self.began_s)
        done, _ = await asyncio.wait(
            {self._serving, self._ready}, timeout=max(1.0, left_s), return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            raise TimeoutError(f"not ready after {self.limit_s:.0f} s")
        if not self._ready.done():
            await self._serving
        return self._ready.result()

    async def endpoint(self) -> Endpoint:
        ready = await self.ready()
        return Endpoint(ready.url, ready.key, ready.model)

    async def stop(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    def tails(self, lines: int = 12) -> str:
        parts = {"front": self.run, **self.run.legs}
        return "\n".join(f"--- {name}\n" + "\n".join(list(part.log)[-lines:]) for name, part in parts.items())


def one_engine(name: str, profile: Profile, gpus: tuple[int, ...], folder: Path) -> Engines:
    """One engine on these GPUs; without any, on the processor."""
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}
    return Engines(name, folder, lambda *told: serve.serve(profile, *told, env=env))


def two_engines(name: str, profile: Profile, gpus: tuple[tuple[int, ...], tuple[int, ...]], folder: Path) -> Engines:
    """Prefill and decode apart, each on its GPUs."""
    prefill, decode = (Leg(profile, own) for own in gpus)
    both = Separation((prefill,), (decode,))
    return Engines(name, folder, lambda *told: apart.serve_separated(both, *told))


def ways_of_ucx(engines: Engines) -> list[str]:
    """How UCX says it moves memory of GPUs, once each, by the sizes of reads; nothing where it was not asked to say."""
    log = engines.log.with_name(f"{engines.log.stem}-decode.log").read_text(errors="replace")
    return list(dict.fromkeys(line.partition("|")[2].strip(" |") for line in log.splitlines()
                              if "|" in line and "cuda" in line))  # fmt: skip
