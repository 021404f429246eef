"""One engine on the Serve page: its light, its memory, its start, and why it failed."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout

from ui import language
from ui.engines import Engines
from ui.plots.looks import NAMES
from ui.serve.legs_view import LegsView
from ui.widgets.access_line import AccessLine
from ui.widgets.badge import Badge
from ui.widgets.banner import Banner
from ui.widgets.button import button
from ui.widgets.card import Card
from ui.widgets.elided import Elided
from ui.widgets.failure_card import FailureCard
from ui.widgets.label import label
from ui.widgets.memory_view import MemoryView
from ui.widgets.side_line import SideMark
from ui.widgets.start_view import StartView
from ui.widgets.state_light import StateLight
from ui.widgets.stored_weights import StoredWeights, precision_of
from workbench import figures
from workbench.catalog.capacity import Capacity
from workbench.catalog.model import Model
from workbench.engine.facts import EngineFacts
from workbench.engine.fit import shorter_context
from workbench.engine.profile import shorter
from workbench.engine.separation import Separation
from workbench.engine_events import EngineMemory
from workbench.runs import EngineRun
from workbench.words import Sentence

SILENT = "Still loading, no output for {seconds} s."


class EngineCard(Card):
    """Shows one side of `Engines` and says what the user wants; it starts nothing by itself."""

    start_asked = Signal()
    stop_asked = Signal()
    chat_asked = Signal()
    context_asked = Signal(int)  # a length that fits, before the start
    retry_asked = Signal(int)  # start again, with the length that the refusal named, or 0 for as before

    def __init__(self, side: str):
        super().__init__()
        self.side = side
        self._fit: Capacity | None = None
        self._length = 0
        self._shown_error: object = None
        self.light = StateLight()
        self.name = Elided("muted")
        self.precision, self.weights = Badge(tone=side), StoredWeights()
        self.precision.hide()
        self._model: Model | None = None
        self._facts: EngineFacts | None = None
        self.start_button = button("Start", self.start_asked.emit, icon="play-fill")
        self.stop_button = button("Stop", self.stop_asked.emit, icon="stop-fill")
        self.chat_button = button("Chat", self.chat_asked.emit, icon="chat-3-line")
        self.warning: Banner | None = None
        self.memory = MemoryView(side)
        self.remarks = label(role="caption", wrap=True)
        self.legs = LegsView(side)
        self._separation: Separation | None = None
        self.start = StartView(side)
        self.timeline, self.progress, self.last_line = self.start.timeline, self.start.progress, self.start.last_line
        self.retry_button = button("Start again", lambda: self.retry_asked.emit(self._length), icon="restart-line")
        self.failure = FailureCard(self.retry_button)
        self.access = AccessLine()
        self._build()

    def show_model(self, model: Model | None) -> None:
        """Whose card it is; None where others started the engines."""
        self._model = model
        self.name.show_text(model.name if model else "")
        self.name.setToolTip(str(model.folder) if model else "")
        self.precision.setVisible(model is not None)
        self.weights.show_weights(model.quantization if model else None, self._facts)
        if model:
            self.precision.show_text(precision_of(model), self.side)

    def show_facts(self, facts: EngineFacts) -> None:
        """Which engine would serve it."""
        self._facts = facts
        if self._model:
            self.weights.show_weights(self._model.quantization, facts)

    def show_fit(self, fit: Capacity | None) -> None:
        """What the profile would take; None while that is not known."""
        self._fit = fit

    def show_separation(self, separation: Separation | None) -> None:
        """Which engines would be started in place of one."""
        self._separation = separation

    def show_engine(self, engines: Engines, now_s: float) -> None:
        """Draw what the engine of this side is at `now_s`, on the clock of its events."""
        state, run = engines.state(self.side), engines.run(self.side)
        running = engines.is_running(self.side)
        self.light.show_state(state)
        start = "Switch to this one" if engines.can_switch(self.side) else "Start"
        for setter in (self.start_button.setText, self.start_button.setAccessibleName):
            language.bind(setter, start)
        self.start_button.setVisible(not running)
        self.stop_button.setVisible(running)
        self.stop_button.setEnabled(state != "stopping")
        self.chat_button.setVisible(state == "ready")
        self.access.show_ready(run.ready if state == "ready" else None)
        self._show_memory(run, state)
        self._warn(running)
        self.start.show_start(run, state, now_s, engines.silent_s(self.side))
        separation = engines.separation(self.side) if running or state == "failed" else self._separation
        self.legs.show_engines(separation, engines, now_s)
        if separation:
            for part in (self.memory, self.remarks, self.start):
                part.hide()  # each engine shows its own
        self._show_failure(engines, run, state)
        if self._model is None:
            self.name.show_text(run.ready.model if run.ready else "")

    # -- parts

    def _build(self) -> None:
        self.body.setSpacing(10)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(SideMark(self.side))
        title = QLabel()
        language.show(title.setText, NAMES[self.side])
        title.setProperty("role", "section")
        head.addWidget(title)
        head.addStretch(1)
        head.addWidget(self.light)
        for each in (self.chat_button, self.start_button, self.stop_button):
            head.addWidget(each)
        self.body.addLayout(head)
        whose = QHBoxLayout()
        whose.setSpacing(8)
        whose.addWidget(self.name, 1)
        whose.addWidget(self.precision)
        self.body.addLayout(whose)
        self.body.addWidget(self.weights)
        self.body.addWidget(self.access)
        self._warnings = QVBoxLayout()
        self.body.addLayout(self._warnings)
        self.body.addWidget(self.failure)
        self.body.addWidget(self.memory)
        self.body.addWidget(self.remarks)
        self.body.addWidget(self.start)
        self.body.addWidget(self.legs)

    def _show_memory(self, run: EngineRun, state: str) -> None:
        fit = self._fit
        self.memory.setVisible(fit is not None)
        if fit is None:
            self.remarks.hide()
            return
        told = run.memory if state in ("starting", "ready") else EngineMemory()
        self.memory.show_memory(fit, told, failed=state == "failed")
        notes = [Sentence(note.message, note.values) for note in run.notes if note.message != SILENT]
        notes = notes if state in ("waiting", "starting", "ready") else []
        if fit.unpacked and not notes:
            notes = [Sentence("Packed weights are unpacked at load on this processor: they save no memory here.")]
        self.remarks.setVisible(bool(notes))
        language.show(self.remarks.setText, notes[-1] if notes else "")

    def _warn(self, running: bool) -> None:
        """Before the start: what does not fit, with both numbers and the way out."""
        fit = self._fit
        wanted = None
        if fit and not running and not fit.fits:
            wanted = (fit.sentence, shorter_context(fit))
        if wanted == (self.warning and self.warning.property("wanted")):
            return
        if self.warning:
            self.warning.hide()
            self.warning.deleteLater()
            self.warning = None
        if wanted:
            sentence, length = wanted
            use = button("Use {tokens}", lambda: self.context_asked.emit(length), tokens=figures.tokens(length))
            self.warning = Banner("warning", sentence, *([use] if length else []), closable=False)
            self.warning.setProperty("wanted", wanted)
            self._warnings.addWidget(self.warning)

    def _show_failure(self, engines: Engines, run: EngineRun, state: str) -> None:
        self.failure.setVisible(state == "failed")
        if state != "failed" or run.error is None or run.error is self._shown_error:
            return
        self._shown_error = run.error
        profile = engines.profile(self.side)
        failed = next((leg for leg in run.legs.values() if leg.error), run)
        reduced = shorter(profile, failed.error) if profile else None
        self._length = reduced.context if reduced else 0
        if reduced:
            tokens = figures.tokens(self._length)
            language.bind(self.retry_button.setText, "Start with {tokens} tokens", tokens=tokens)
        else:
            language.bind(self.retry_button.setText, "Start again")
        self.failure.show_failure(run.error, [*run.log, *(failed.log if failed is not run else ())])
