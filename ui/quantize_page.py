"""Quantize: choose how, see what it means, watch it happen, take the result on."""

import asyncio
import time
from pathlib import Path

from PySide6.QtCore import QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from ui import language
from ui.log_drawer import LogSource, Status
from ui.notices import Notices
from ui.page import Page
from ui.quantize.cells import Cells
from ui.quantize.exports import Exports
from ui.quantize.looks import Looks
from ui.quantize.surface import Surface
from ui.quantize.tries import Tries, Try
from ui.tasks import Tasks
from ui.widgets.label import restyle
from workbench import jobs, quant_report
from workbench.catalog.devices import devices
from workbench.catalog.folder import Model, inspect
from workbench.draft import Draft
from workbench.errors import WorkbenchError
from workbench.events import Cancelled, Event, Failed
from workbench.quant_run import QuantRun
from workbench.recipe import Choice, Recipe
from workbench.settings import Settings
from workbench.words import Sentence

TICK_MS = 1000  # the clock goes on while no event comes


class QuantizePage(Page):
    """One model, its recipe and plan (`draft`), and the run of it (`run`, the fold of the job's events).

    Signals:
        finished(original, result): both folders, to be served
        models_wanted: there is nothing to quantize yet
        made(result): a run ended well; its folder is complete
    """

    finished = Signal(object, object)
    models_wanted = Signal()
    made = Signal(object)

    def __init__(self, settings: Settings, tasks: Tasks, notices: Notices):
        super().__init__(settings, tasks, notices)
        self.draft = Draft(settings.library[0])
        self.run: QuantRun | None = None
        self.folder: Path | None = None  # of the job
        self.looks, self.tries = Looks(settings, tasks), Tries(settings, tasks)
        self._cells = Cells(None, None)
        self._ending = False
        self._started_s = 0.0
        self.set_primary("Quantize", self.start)
        self.exports = Exports(settings, tasks)
        self.view = Surface(self.looks, self.tries, self.exports)
        self.head.addWidget(self.view.recipes)
        self.head.addWidget(self.view.summary, 1)
        self.head.addWidget(self.view.history)
        self.content.addWidget(self.view, 1)
        self._tick = QTimer(self, interval=TICK_MS)
        self._tick.timeout.connect(self.touch)
        self._connect()
        self._show_plan()

    def arrive(self) -> None:
        self.tasks.start(self._weigh())

    async def _weigh(self) -> None:
        """Find out what the result would be served on."""
        self.draft.device = (await asyncio.to_thread(devices))[0]
        self._show_plan()

    # -- choosing

    def open(self, model: Model) -> None:
        """Plan for `model`, unless a run is going on."""
        if self.running:
            self.notices.info(
                Sentence("{name} is still being quantized.", {"name": self.draft.model.name}),
                Sentence("Wait for it or cancel it, then pick the other model again."),
            )
            return
        self.looks.drop()
        self.tries.drop()
        self.run = self.folder = None
        self.draft.take_model(model)
        self._show_plan()
        if model.linears:
            self.show_layer(model.linears[0].name)

    def set_recipe(self, chosen: Recipe) -> None:
        """Plan anew with another recipe."""
        self._change(lambda: self.draft.take_recipe(chosen))

    def set_output(self, path: Path) -> None:
        """Write the result to `path`."""
        self._change(lambda: self.draft.take_output(path))

    def set_choice(self, name: str, choice: Choice, everywhere: bool) -> None:
        """Quantize one layer, or its like in all blocks, by `choice`."""
        self._change(lambda: self.draft.take_choice(name, choice, everywhere))

    def try_choice(self, name: str, choice: Choice, everywhere: bool) -> None:
        """Show what a choice would do to a layer; the recipe stays until `keep`."""
        if self.draft.plan is None or self.running:
            return
        planned = next((entry.choice for entry in self.draft.plan.linears if entry.linear.name == name), None)
        if choice == planned and not everywhere:
            self.tries.end(name)
        else:
            self.tries.begin(self.draft.model, self.draft.recipe, name, Try(choice, everywhere))
        self.touch()

    def keep(self, name: str) -> None:
        """Write what is tried on a layer into the recipe."""
        if tried := self.tries.of(name):
            self.set_choice(name, tried.choice, tried.everywhere)
            self.tries.end(name)

    def choose(self, name: str) -> None:
        """Show one layer; before a run its weights are read for that."""
        self.view.progress.follow.setChecked(False)
        self.show_layer(name)
        self.look()

    def look(self) -> None:
        """Read the weights of the layers in view that no run has reached, for their histograms."""
        if self.draft.model and not self.running:
            done = self.run.modules if self.run else ()
            self.looks.want(self.draft.model.folder, [name for name in self.view.details.in_view if name not in done])
            self._ask()
        self.touch()

    def _ask(self) -> None:
        """A worker that is there anyhow also tells what the plan does to the layers in view."""
        if self.tries.awake and self.draft.plan:
            planned = {entry.linear.name: entry.choice for entry in self.draft.plan.linears}
            for name in self.view.details.in_view:
                if name in planned and self.tries.of(name) is None:
                    self.tries.ask(self.draft.model, self.draft.recipe, name, planned[name])

    def _change(self, take) -> None:
        if self.draft.model is None or self.running:
            return
        self.run = self.folder = None  # what an earlier run showed makes way
        take()
        self._show_plan()

    def show_layer(self, name: str) -> None:
        """Show one layer with what is known of it."""
        self.view.strip.choose(name)
        self.view.details.show_chosen(name)
        self.touch()

    # -- running

    def start(self) -> None:
        """Quantize by the plan."""
        if self.draft.plan is None or self.draft.plan.blocks or self.running:
            return
        self.looks.drop()
        self.tries.drop()  # the run needs its share of the machine
        self.run, self._started_s = QuantRun(), time.monotonic()
        self.folder = jobs.create("quantize", self.draft.spec(self.view.setup.measure.isChecked()))
        self.view.progress.follow.setChecked(True)
        self.begin(self._quantize(self.folder))

    async def _quantize(self, folder: Path) -> None:
        assert self.run is not None
        try:
            await jobs.run(folder, self.on_event, self.settings)
        except WorkbenchError as error:
            if self.run.failed is None:
                self.run.apply(Failed(error.message, error.hint_template, error.values))
        if self.run.path:
            self.made.emit(Path(self.run.path))

    def open_report(self) -> None:
        """Show the report of the run in the browser."""
        if self.folder:
            self.tasks.start(self._open_report(self.folder))

    async def _open_report(self, folder: Path) -> None:
        page = await asyncio.to_thread(quant_report.of_job, folder)
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(page)))

    def cancel(self) -> None:
        """End the run; its worker is gone when the task has ended."""
        self._ending = bool(self.running)
        super().cancel()
        self.redraw()

    def on_event(self, event: Event) -> None:
        """Fold an event of the job in and draw it within a frame."""
        assert self.run is not None
        self.run.apply(event)
        self.touch()

    def reopen(self, folder: Path) -> None:
        """Show a job of earlier as it ended, from its folder alone."""
        if self.running:
            return
        self.tries.drop()
        spec = jobs.spec_of(folder)
        self.run, self.folder = QuantRun(), folder
        for event in jobs.replay(folder):
            self.run.apply(event)
        model = None
        try:
            model = inspect(Path(spec["model"]))
        except WorkbenchError as error:  # the original is gone; the events still tell what was done
            self.notices.tell(error)
        self.draft.take_job(spec, model)
        self._show_plan()
        if self.run.modules:
            self.show_layer(next(reversed(self.run.modules)))

    def set_running(self, running: bool) -> None:
        """The form locks, the clock runs; at the end the result or the reason is shown."""
        self._ending = self._ending and running
        if running:
            self._tick.start()
        else:
            self._tick.stop()
            if self.run and not (self.run.path or self.run.failed):
                self.run.apply(Cancelled())
        self._show_plan()

    def would_lose(self) -> Sentence | None:
        if not self.running:
            return Sentence("An export is not finished.") if self.exports.progress else None
        return Sentence("The quantization of {name} is not finished.", {"name": self.draft.model.name})

    def statuses(self) -> list[Status]:
        if not self.running or self.run is None:
            gathering = self.tries.gathering
            return [Status(Sentence("Gathering calibration statistics"), gathering.share)] if gathering else []
        words = Sentence("Quantizing {name}", {"name": self.draft.model.name})
        return [Status(words, self.run.share, self.run.left_s())]

    def logs(self) -> list[LogSource]:
        return [LogSource(Sentence("Quantization"), self.folder / "worker.log")] if self.folder else []

    # -- showing

    def redraw(self) -> None:
        """Draw what moves: the cells that changed, the layers in view, the line below."""
        self.view.strip.put(self._cells.changed())
        if self.run and self.running and self.run.modules and self.view.progress.follow.isChecked():
            newest = next(reversed(self.run.modules))
            self.view.strip.choose(newest)
            self.view.details.show_chosen(newest)
        self.view.details.draw(self.draft, self.run, bool(self.running))
        self.view.show_run(self.draft, self.run, bool(self.running), self.folder)
        if self.running and self.run:
            block = self._cells.block(self.run.current)
            self.view.progress.show_run(self.run, block, time.monotonic() - self._started_s, self._ending)

    def _show_plan(self) -> None:
        """Draw what depends on the plan and on which part of the work the page is in."""
        running, done = bool(self.running), bool(self.run and self.run.path)
        plan = self.draft.plan
        if done and Path(self.run.path).is_dir():
            self.exports.look(Path(self.run.path))
        if self.draft.model or self.run:
            language.show(self.heading.setText, self.draft.model.name if self.draft.model else self.draft.output.name)
        else:
            self.set_title("Quantize")
        self._cells = Cells(plan, self.run)
        self.view.show_draft(self.draft, self.run, running, self._cells.all())
        self.primary.setVisible(plan is not None)
        self.primary.setEnabled(not running and not done and plan is not None and not plan.blocks)
        self.view.history.setEnabled(not running)
        lesser = done or bool(self.run and self.run.failed)  # there the next step lies elsewhere
        restyle(self.primary, "kind", "plain" if lesser else "primary")
        if plan is not None or self.run is not None:
            self.redraw()
        self.touch()

    def _connect(self) -> None:
        view = self.view
        self.looks.changed.connect(self.touch)
        self.tries.changed.connect(self.touch)
        view.recipes.picked.connect(self.set_recipe)
        view.recipes.failed.connect(self.notices.tell)
        view.conflicts.fixed.connect(self.set_recipe)
        view.setup.recipe_changed.connect(self.set_recipe)
        view.setup.output_changed.connect(self.set_output)
        view.details.choice_changed.connect(self.try_choice)
        view.details.kept.connect(self.keep)
        view.details.discarded.connect(self.tries.end)
        view.details.unpinned.connect(view.strip.unpin)
        view.strip.chosen.connect(self.choose)
        view.details.look_wanted.connect(self.look)
        language.changed.connect(self._show_plan)
        view.strip.pinned.connect(self._pin)
        view.progress.cancelled.connect(self.cancel)
        view.progress.followed.connect(self.touch)
        view.result.serve_wanted.connect(self.finished)
        view.models_wanted.connect(self.models_wanted)
        view.history.picked.connect(self.reopen)
        view.again.clicked.connect(self.start)
        view.result.report_wanted.connect(self.open_report)
        view.report.clicked.connect(self.open_report)
        self.exports.made.connect(self.made)

    def _pin(self, name: str) -> None:
        self.view.details.show_pinned(name)
        self.look()
