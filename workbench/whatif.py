"""What-if: asks a resident worker what a choice would do to one linear layer, before any run."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench import admission, jobs
from workbench import recipe as recipes
from workbench.admission import Ask
from workbench.events import Event, Finished
from workbench.quant_events import WhatIf, WhatIfRefused
from workbench.recipe import Choice, Recipe
from workbench.settings import Settings

REQUESTS = "requests.jsonl"


class Trials:
    """The questions to one model and their answers.

    `answers` and `refused` hold the newest by module; an answer to an earlier question never replaces a later one.
    The statistics are those of the recipe's calibration text: the job "statistics" with the same `spec` gathers
    them, and a worker that already runs takes them as they come, block by block.
    """

    def __init__(self, model: Path, recipe: Recipe, settings: Settings, on_event: Callable[[Event], None]):
        self.spec = spec(model, recipe)
        self.answers: dict[str, WhatIf] = {}
        self.refused: dict[str, WhatIfRefused] = {}
        self._settings, self._on_event = settings, on_event
        self._folder = jobs.create("whatif", self.spec)
        self._last = 0
        self._asked: dict[str, int] = {}

    async def run(self, ask: Ask = admission.anyway) -> None:
        """Keep the worker until `close` or cancelled; nothing of it stays on disk. `ask` as in `jobs.run`."""
        try:
            await jobs.run(self._folder, self._take, self._settings, ask)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, module: str, choice: Choice) -> int:
        """The number of the question; its answers carry it. May be asked before the worker runs."""
        self._last += 1
        self._asked[module] = self._last
        self._write({"id": self._last, "module": module, "choice": asdict(choice)})
        return self._last

    def close(self) -> None:
        """Let the worker answer what was asked and end."""
        self._write({"close": True})

    def waiting(self, module: str) -> bool:
        """Whether the newest question about a layer has no final answer yet."""
        asked, answer, refused = self._asked.get(module), self.answers.get(module), self.refused.get(module)
        answered = (answer and answer.final and answer.id == asked) or (refused and refused.id == asked)
        return asked is not None and not answered

    def _take(self, event: Event) -> None:
        if isinstance(event, Finished):
            return  # no result lies anywhere
        if isinstance(event, WhatIf | WhatIfRefused):
            if event.id != self._asked.get(event.module):
                return
            if isinstance(event, WhatIf):
                self.answers[event.module] = event
                self.refused.pop(event.module, None)
            else:
                self.refused[event.module] = event
                self.answers.pop(event.module, None)
        self._on_event(event)

    def _write(self, request: dict[str, Any]) -> None:
        if self._folder.is_dir():  # else it has ended
            with (self._folder / REQUESTS).open("a", encoding="utf-8") as requests:
                requests.write(json.dumps(request) + "\n")


def spec(model: Path, recipe: Recipe) -> dict[str, Any]:
    """The spec of the jobs "statistics", "whatif" and "sensitivity"."""
    return {"model": str(Path(model).resolve()), "recipe": recipes.to_dict(recipe)}
