"""The worker that stays and answers what-if requests, from the weights and the kept calibration statistics.

Requests are lines that the client adds to `requests.jsonl` in the job folder: {"id", "module", "choice"}, and
{"close": true} at the end. Only the latest request of a module is answered, the latest of all first.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from workbench import moments_kept, whatif
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Event, Finished, Stage, WhatIf, WhatIfRefused
from workbench.quantization.gathering import Kept
from workbench.quantization.trial import Bench
from workbench.quantization.weights import Weights
from workbench.recipe import Choice

PERIOD_S = 0.02


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """spec: model (folder), recipe (plain values: its calibration counts); optionally threads. Answers until closed.

    Each request gets one WhatIf that is final, maybe a quicker one before it, or one WhatIfRefused.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    source, recipe = Path(spec["model"]), recipes.from_dict(spec["recipe"])
    place = moments_kept.folder_of(source, recipe)
    bench = Bench(catalog.inspect(source), recipe, Weights(source), Kept(place))
    queue = _Queue(folder / whatif.REQUESTS)
    begun: dict[str, Iterator[WhatIf]] = {}  # answers that are still to be refined, oldest first
    yield Stage("Answering")
    while not queue.ended or begun:
        request = queue.take()
        if request:
            begun.pop(request["module"], None)
            name, answers = request["module"], _answers(bench, request)
        elif begun:
            name, answers = next(iter(begun)), begun.pop(next(iter(begun)))
        else:
            time.sleep(PERIOD_S)
            continue
        for answer in answers:
            yield answer
            if isinstance(answer, WhatIf) and not answer.final:
                begun[name] = answers  # whoever waits for a first answer comes before this one's refinement
                break
    yield Finished(str(folder))


def _answers(bench: Bench, request: Mapping[str, Any]) -> Iterator[WhatIf | WhatIfRefused]:
    number, name = int(request["id"]), str(request["module"])
    try:
        yield from bench.answers(number, name, Choice(**request["choice"]))
    except WorkbenchError as error:
        yield WhatIfRefused(number, name, error.message, error.hint_template, error.values)


class _Queue:
    """The requests that wait, by module; a later one takes the place of an earlier one."""

    def __init__(self, path: Path):
        self._path, self._at, self._rest = path, 0, b""
        self._waiting: dict[str, dict[str, Any]] = {}
        self._closed = False

    @property
    def ended(self) -> bool:
        """Whether the client closed and nothing waits."""
        self._read()
        return self._closed and not self._waiting

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
                self._closed = True
            else:
                self._waiting.pop(request["module"], None)
                self._waiting[request["module"]] = request
