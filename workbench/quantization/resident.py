"""The worker that stays and answers what-if requests, from the weights and the kept calibration statistics.

Requests are lines that the client adds to `requests.jsonl` in the job folder: {"id", "module", "choice"}, and
{"close": true} at the end. Only the latest request of a module is answered, the latest of all first.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from workbench import moments_kept, whatif
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Event, Finished, Stage
from workbench.quant_events import WhatIf, WhatIfRefused
from workbench.quantization.gathering import Kept
from workbench.quantization.trial import Bench
from workbench.quantization.weights import Weights
from workbench.recipe import Choice

PERIOD_S = 0.02
REST_S = 0.3  # without a question before answers are made whole: a slider that moves asks many


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """spec: model (folder), recipe (plain values: its calibration counts); optionally threads. Answers until closed.

    Each request gets one WhatIf that is final, maybe a quicker one before it, or one WhatIfRefused.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    source, recipe = Path(spec["model"]), recipes.from_dict(spec["recipe"])
    place = moments_kept.folder_of(source, recipe)
    bench = Bench(catalog.inspect(source), recipe, Weights(source), Kept(place))
    queue = _Queue(folder / whatif.REQUESTS)
    begun: dict[str, Mapping[str, Any]] = {}  # requests that are still to be answered in full, oldest first
    idle_s = time.monotonic()
    yield Stage("Answering")
    while not queue.ended or begun:
        if request := queue.take():
            begun.pop(request["module"], None)
            answer = _answer(bench.first, request)
            yield answer
            if isinstance(answer, WhatIf) and not answer.final:
                begun[request["module"]] = request
            idle_s = time.monotonic()
        elif begun and (queue.closed or time.monotonic() - idle_s > REST_S):
            request = begun.pop(next(iter(begun)))
            try:
                with _interrupted_by(queue):
                    answer = _answer(bench.whole, request)
            except _Overtaken:
                begun[request["module"]] = request
                continue
            yield answer
        else:
            time.sleep(PERIOD_S)
    yield Finished(str(folder))


def _answer(answer: Callable[[int, str, Choice], WhatIf], request: Mapping[str, Any]) -> WhatIf | WhatIfRefused:
    number, name = int(request["id"]), str(request["module"])
    try:
        return answer(number, name, Choice(**request["choice"]))
    except WorkbenchError as error:
        return WhatIfRefused(number, name, error.message, error.hint_template, error.values)


class _Overtaken(Exception):
    """A new question came while an old one was being answered in full."""


@contextmanager
def _interrupted_by(queue: "_Queue") -> Iterator[None]:
    """A whole answer takes many seconds and must not keep a first one waiting."""

    def look(*_: object) -> None:
        if queue.waiting:
            raise _Overtaken
        signal.setitimer(signal.ITIMER_REAL, PERIOD_S)  # only now: a tick must not come within a look

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, PERIOD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Queue:
    """The requests that wait, by module; a later one takes the place of an earlier one."""

    def __init__(self, path: Path):
        self._path, self._at, self._rest = path, 0, b""
        self._waiting: dict[str, dict[str, Any]] = {}
        self.closed = False

    @property
    def waiting(self) -> bool:
        """Whether a request has not been taken."""
        self._read()
        return bool(self._waiting)

    @property
    def ended(self) -> bool:
        """Whether the client closed and nothing waits."""
        return not self.waiting and self.closed

    def take(self) -> dict[str, Any] | None:
        """The latest request; None where nothing waits."""
        self._read()
        return self._waiting.popitem()[1] if self._waiting else None

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request.get("close"):
                self.closed = True
            else:
                self._waiting.pop(request["module"], None)
                self._waiting[request["module"]] = request
