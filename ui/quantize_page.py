"""Quantize: choose how, see what it means, watch it happen, take the result on."""

import asyncio
from pathlib import Path

from PySide6.QtCore import QTimer, Signal

from ui import language
from ui.log_drawer import LogSource, Status
from ui.notices import Notices
from ui.page import Page
from ui.quantize.cells import Cells
from ui.quantize.choosing import Choosing
from ui.quantize.exports import Exports
from ui.quantize.job_run import JobRun
from ui.quantize.queue_box import QueueBox
from ui.quantize.queue_run import QueueRun
from ui.quantize.surface import Surface
from ui.tasks import Tasks
from ui.widgets.label import restyle
from workbench.catalog.devices import devices
from workbench.catalog.folder import Model, inspect
from workbench.draft import Draft
from workbench.errors import WorkbenchError
from workbench.quant_run import QuantRun
from workbench.settings import Settings
from workbench.words import Sentence

TICK_MS = 1000  # the clock goes on while no event comes


class QuantizePage(Page):
    """One model, its recipe and plan (`choosing`), the run of it (`job`), and where both are seen (`view`).

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
        self.job = JobRun(settings, tasks)
        self.choosing = Choosing(settings, tasks, self.job)
        self.exports, self.queue = Exports(settings, tasks), QueueRun(settings, tasks)
        self.queue_box = QueueBox(self, self.queue)
        self._cells = Cells(None, None)
        self.set_primary("Quantize", self.start)
        self.view = Surface(self.choosing, self.exports)
        self.head.addWidget(self.view.recipes)
        self.head.addWidget(self.view.summary, 1)
        self.head.addStretch()  # where there is no summary to take the room
        self.head.addWidget(self.queue_box.opener)
        self.head.addWidget(self.view.history)
        self.content.addWidget(self.view, 1)
        self._tick = QTimer(self, interval=TICK_MS)
        self._tick.timeout.connect(self.touch)
        self._connect()
        self._show_plan()

    @property
    def draft(self) -> Draft:
        return self.choosing.draft

    @property
    def run(self) -> QuantRun | None:
        return self.job.run

    def arrive(self) -> None:
        self.tasks.start(self._weigh())

    async def _weigh(self) -> None:
        """Find out what the result would be served on."""
        self.draft.device = (await asyncio.to_thread(devices))[0]
        self._show_plan()

    # -- what the user does

    def open(self, model: Model) -> None:
        """Plan for `model`, unless a run is going on."""
        if self.running:
            self.notices.info(
                Sentence("{name} is still being quantized.", {"name": self.draft.model.name}),
                Sentence("Wait for it or cancel it, then pick the other model again."),
            )
            return
        self.choosing.take_model(model)
        if model.linears:
            self.show_layer(model.linears[0].name)

    def choose(self, name: str) -> None:
        """Show one layer; before a run its weights are read for that."""
        self.view.progress.follow.setChecked(False)
        self.show_layer(name)
        self.look()

    def look(self) -> None:
        """Read the weights of the layers in view."""
        self.choosing.look(self.view.details.in_view)

    def show_layer(self, name: str) -> None:
        """Show one layer with what is known of it."""
        self.view.strip.choose(name)
        self.view.details.show_chosen(name)
        self.touch()

    def start(self) -> None:
        """Quantize by the plan."""
        if self.draft.plan is None or self.draft.plan.blocks or self.running or self.queue.going:
            return
        self.choosing.start_job(self.view.setup.measure.isChecked())
        self.view.progress.follow.setChecked(True)
        self.begin(self.job.work())

    def cancel(self) -> None:
        """End the run; its worker is gone when the task has ended."""
        self.job.ending = bool(self.running)
        super().cancel()
        self.redraw()

    def reopen(self, folder: Path) -> None:
        """Show a job of earlier as it ended, from its folder alone."""
        if self.running:
            return
        spec, model = self.job.reopen(folder), None
        try:
            model = inspect(Path(spec["model"]))
        except WorkbenchError as error:  # the original is gone; the events still tell what was done
            self.notices.tell(error)
        self.choosing.take_job(spec, model)
        if self.run.modules:
            self.show_layer(next(reversed(self.run.modules)))

    # -- what the window asks

    def set_running(self, running: bool) -> None:
        """The form locks, the clock runs; at the end the result or the reason is shown."""
        if running:
            self._tick.start()
        else:
            self._tick.stop()
            self.job.end()
        self._show_plan()

    def would_lose(self) -> Sentence | None:
        if not self.running:
            if self.queue.going:
                return Sentence("The queue is not finished. What is at work waits again, what is done stays.")
            return Sentence("An export is not finished.") if self.exports.progress else None
        return Sentence("The quantization of {name} is not finished.", {"name": self.draft.model.name})

    def statuses(self) -> list[Status]:
        if not self.running or self.run is None:
            return [*self.choosing.statuses(), *self.queue.statuses()]
        words = Sentence("Quantizing {name}", {"name": self.draft.model.name})
        return [Status(words, self.run.share, self.run.left_s())]

    def logs(self) -> list[LogSource]:
        return [LogSource(Sentence("Quantization"), self.job.folder / "worker.log")] if self.job.folder else []

    # -- showing

    def redraw(self) -> None:
        """Draw what moves: the cells that changed, the layers in view, the line below."""
        self.view.left.put(self._cells.changed())
        self.view.left.draw()
        if self.run and self.running and self.run.modules and self.view.progress.follow.isChecked():
            newest = next(reversed(self.run.modules))
            self.view.strip.choose(newest)
            self.view.details.show_chosen(newest)
        self.view.details.draw(self.choosing.shown, self.run, bool(self.running), self.choosing.amending.first)
        self.view.show_run(self.draft, self.run, bool(self.running), self.job.folder)
        if self.running and self.run:
            block = self._cells.block(self.run.current)
            self.view.progress.show_run(self.run, block, self.job.elapsed_s, self.job.ending)

    def _show_plan(self) -> None:
        """Draw what depends on the plan and on which part of the work the page is in."""
        running, done = bool(self.running), self.job.done
        shown = self.choosing.shown
        plan = shown.plan
        if done and Path(self.run.path).is_dir():
            self.exports.look(Path(self.run.path))
        if self.draft.model or self.run:
            language.show(self.heading.show_text, self.draft.model.name if self.draft.model else self.draft.output.name)
        else:
            self.set_title("Quantize")
        self._cells = Cells(plan, self.run, self.choosing.amending.names)
        self.view.show_draft(shown, self.run, self.choosing.amending, self._cells.all())
        self.primary.setVisible(plan is not None)
        busy = running or self.queue.going
        self.primary.setEnabled(not busy and not done and plan is not None and not plan.blocks)
        self.queue_box.show_draft(shown, running)
        self.view.history.setEnabled(not running)
        lesser = done or self.job.failed  # there the next step lies elsewhere
        restyle(self.primary, "kind", "plain" if lesser else "primary")
        if plan is not None or self.run is not None:
            self.redraw()
        self.touch()

    def _connect(self) -> None:
        view, choosing = self.view, self.choosing
        choosing.touched.connect(self.touch)
        choosing.replanned.connect(self._show_plan)
        language.changed.connect(self._show_plan)
        self.job.moved.connect(self.touch)
        self.job.made.connect(self.made)
        self.exports.made.connect(self.made)
        self.queue.made.connect(self.made)
        self.queue.changed.connect(self._show_plan)
        view.recipes.picked.connect(choosing.take_recipe)
        view.recipes.failed.connect(self.notices.tell)
        view.conflicts.fixed.connect(choosing.take_fix)
        view.setup.recipe_changed.connect(choosing.take_recipe)
        view.setup.output_changed.connect(choosing.take_output)
        view.details.choice_changed.connect(choosing.try_choice)
        view.details.kept.connect(choosing.keep)
        view.details.discarded.connect(choosing.tries.end)
        view.details.unpinned.connect(view.strip.unpin)
        view.details.look_wanted.connect(self.look)
        view.amend.applied.connect(choosing.amending.apply)
        view.amend.discarded.connect(choosing.amending.forget)
        view.strip.chosen.connect(self.choose)
        view.strip.pinned.connect(self._pin)
        view.progress.cancelled.connect(self.cancel)
        view.progress.followed.connect(self.touch)
        view.result.serve_wanted.connect(self.finished)
        view.result.report_wanted.connect(self.job.open_report)
        view.report.clicked.connect(self.job.open_report)
        view.models_wanted.connect(self.models_wanted)
        view.history.picked.connect(self.reopen)
        view.again.clicked.connect(self.start)

    def _pin(self, name: str) -> None:
        self.view.details.show_pinned(name)
        self.look()
