"""Real engines for the tests of this folder: slow to start, so one is shared by the tests of a module."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from workbench.catalog import starter
from workbench.engine import serve
from workbench.engine.profile import Profile
from workbench.engine_events import EngineLog, EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed
from workbench.settings import Settings

START_S = 300  # three processes that import torch, on two cores
UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}


class Served:
    """serve() in a thread with its own loop. `ready` is None when it failed; then `failed` says why."""

    def __init__(self, profile: Profile, log: Path, env: Mapping[str, str] | None = None):
        self.profile = profile
        self.env = env
        self.log = log
        self.events: list[Event] = []
        self._settled = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._settled.wait(START_S), self.tail()

    @property
    def ready(self) -> EngineReady | None:
        return next((event for event in self.events if isinstance(event, EngineReady)), None)

    @property
    def failed(self) -> Failed | None:
        return next((event for event in self.events if isinstance(event, Failed)), None)

    def tail(self) -> str:
        return "\n".join(event.text for event in self.events[-80:] if isinstance(event, EngineLog))

    def stop(self) -> None:
        """End the engine; returns when its tree is gone."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        self._task = self._loop.create_task(self._serve())
        try:
            self._loop.run_until_complete(self._task)
        except (WorkbenchError, asyncio.CancelledError):
            pass
        finally:
            self._loop.close()
            self._settled.set()

    def _serve(self) -> Coroutine[Any, Any, None]:
        return serve.serve(self.profile, Settings(), self._take, self.log, env=self.env)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, EngineReady):
            self._settled.set()


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The starter model's folder, made once per machine."""
    return starter.get(lambda event: None)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """`served(profile)` starts an engine and waits until it is ready or failed; all end after the module.

    One that is not `compiled` starts much faster, its model's code as it is written.
    """
    running: list[Served] = []

    def start(profile: Profile, compiled: bool = True) -> Served:
        log = tmp_path_factory.mktemp("engine") / "engine.log"
        running.append(Served(profile, log, None if compiled else UNCOMPILED))
        return running[-1]

    yield start
    for each in running:
        each.stop()
