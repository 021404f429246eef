"""`python tests/qt/quantize/states.py JOB FOLDER`: every state of the Quantize page as pictures, from a job's events.

No worker runs: what one would tell is taken from the job. A third argument picks states by a part of their name.
"""

import asyncio
import os
import sys
import tempfile
from itertools import product
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from PySide6.QtWidgets import QApplication

from ui import language, theme
from ui.main_window import MainWindow
from workbench import jobs, moments_kept, recipe, whatif
from workbench.catalog.folder import inspect
from workbench.events import Failed
from workbench.overnight import Outcome
from workbench.quant_events import Checked, ModuleDone, WhatIf
from workbench.recipe import Choice, with_group_size
from workbench.settings import Settings
from workbench.words import Sentence

SIZES = ((1366, 768), (1440, 900), (2560, 1440))
SETTLED_S = 0.35


class Kept:
    """The events of a job in place of its worker: `until` says how many of its layers a run is let do."""

    def __init__(self, job: Path):
        self.spec, self.events = jobs.spec_of(job), list(jobs.replay(job))
        self.done = {event.name: event for event in self.events if isinstance(event, ModuleDone)}
        self.until = 0
        self.end: tuple = ()

    async def run(self, folder, on_event, _settings, _ask=None):
        layers = 0
        for event in self.events:
            layers += isinstance(event, ModuleDone)
            if layers > self.until:
                break
            on_event(event)
        for event in self.end:
            on_event(event)
        if not self.end:
            await asyncio.sleep(3600)

    def answer(self, trials, name, choice):
        known = self.done[name]
        fields = {key: getattr(known, key) for key in WhatIf.__dataclass_fields__ if hasattr(known, key)}
        trials._on_event(
            WhatIf(id=0, module=name, bytes=123_456, rows=known.shape[0], final=True, compensated=True, estimated=False,
                   **fields)
        )  # fmt: skip


def choose(page, name, pinned=""):
    page.choose(name)
    page.view.strip._set_pin(page.view.strip._places[pinned] if pinned else None)


async def states(window: MainWindow, kept: Kept):
    """Each state's name, with the window standing in it."""
    page, model = window.quantize_page, inspect(Path(kept.spec["model"]))
    names = list(kept.done)
    first, other, late = names[4], names[0], names[-3]
    yield "empty"
    page.open(model)
    page.choosing.looks.drop()
    yield "plan"
    page.choosing.take_recipe(with_group_size(recipe.LAYERED, 128))
    yield "conflict"
    page.choosing.take_recipe(recipe.LAYERED)
    choose(page, first)
    page.choosing.try_choice(first, Choice(method="gptq", bits=8), False)
    yield "try"
    choose(page, first, other)
    page.choosing.try_choice(other, Choice(method="awq", bits=3), True)
    yield "try-pinned"
    page.view.strip._set_pin(None)
    kept.until = 70
    page.start()
    await asyncio.sleep(SETTLED_S)
    yield "run"
    choose(page, late, first)
    yield "run-pinned"
    page.choosing.take_choice(late, Choice(method="gptq", bits=8), True)
    yield "run-change"
    page.cancel()
    await asyncio.wait(page.running)
    yield "cancelled-pinned"
    page.choosing.try_choice(first, Choice(method="gptq", bits=3), False)
    yield "cancelled-try"
    page.view.strip._set_pin(None)
    yield "cancelled"
    kept.end = (
        Checked("The size is as predicted", True, "{size} bytes", {"size": 121069536}),
        Checked("It stays near the original", False, "KL {kl}", {"kl": "2.1"}),
        Failed("The result failed a check: {check} ({detail}).", "", {"check": "x", "detail": "y"}),
    )
    page.start()
    await asyncio.wait(page.running)
    yield "failed"
    kept.end = ()


async def queue(window: MainWindow, picture: Path) -> None:
    """The dialog with results, a failure, one at work and two that wait."""
    page = window.quantize_page
    box, line = page.queue_box, page.queue.line
    for entry in list(line.entries):
        line.remove(entry)
    figures = ((114e6, 0.17, None), (126e6, 0.08, None), (112e6, 0.33, None), (96e6, 1.4, "The result failed a check."))
    for name, figure in zip(("layered", "best", "rtn", "glm", "awq", "int8"), (*figures, None, None), strict=True):
        entry = line.add(page.draft.model.folder, recipe.PRESETS[name], page.draft.library)
        if figure:
            size, kl, failure = figure
            entry.outcome = Outcome(
                name, entry.output, page.draft.library, int(size), kl, 30.0, 0.8, 4.3, 754.0,
                Sentence(failure) if failure else None,
            )  # fmt: skip
    line.current = line.waiting[0]
    box.show()
    await asyncio.sleep(SETTLED_S)
    box.grab().save(str(picture))
    line.current = None
    box.close()


async def draw(kept: Kept, job: Path, folder: Path, part: str) -> None:
    for scheme, code in product(("dark", "light"), ("en", "zh_CN")):
        theme.apply(QApplication.instance(), scheme)
        language.choose(code)
        window = MainWindow(Settings(language=code, theme=scheme))
        window.show()
        window.show_page("quantize")

        async def picture(state, window=window, tail=f"{scheme}-{code}"):
            for width, height in SIZES:
                window.resize(width, height)
                await asyncio.sleep(SETTLED_S)
                window.grab().save(str(folder / f"{state}-{tail}-{width}.png"))

        async for state in states(window, kept):
            if part in state:
                await picture(state)
        if part in "queue":
            await queue(window, folder / f"queue-{scheme}-{code}.png")
        if part in "done":
            window.quantize_page.reopen(job)
            await picture("done")
        await window.tasks.stop_all()
        window.hide()


def main(job: Path, folder: Path, part: str = "") -> None:
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)
    os.environ["LATHE_HOME"] = tempfile.mkdtemp()
    kept = Kept(job)
    jobs.run = kept.run
    whatif.Trials.run = lambda trials, ask: asyncio.sleep(3600)
    whatif.Trials.ask = lambda trials, name, choice: kept.answer(trials, name, choice)
    moments_kept.gathered = lambda *_: True
    folder.mkdir(parents=True, exist_ok=True)
    with asyncio.Runner(loop_factory=lambda: qasync.QEventLoop(app)) as runner:
        runner.run(draw(kept, job, folder, part))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
