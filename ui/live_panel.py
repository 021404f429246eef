"""The live figures of both engines, at the right of Serve and Chat."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from ui import language, theme
from ui.engines import SIDES, Engines
from ui.frames import Frames
from ui.live.acceptance import Acceptance
from ui.live.cache import Cache
from ui.live.device import Device
from ui.live.export_menu import ExportMenu
from ui.live.requests import BetweenTokens, FirstToken
from ui.live.section import Section, Shown
from ui.live.speed import Speed
from ui.live.steps import Steps
from ui.tasks import Tasks
from ui.widgets import label
from workbench.engine.monitor import DeviceSample
from workbench.engine.profile import Profile
from workbench.events import ReplyDone
from workbench.measure import bandwidth, table
from workbench.runs import EngineRun
from workbench.words import Sentence, say

SPANS_S = (120, 900, 3600)
REQUESTS = 500
READINGS = 3600  # an hour of the devices


class LivePanel(QFrame):
    """Folds of figures, each with one line a side and a plot of both; drawn per frame and only while seen."""

    def __init__(self, engines: Engines, tasks: Tasks):
        super().__init__()
        self.setObjectName("dock")
        self._engines, self._tasks = engines, tasks
        self._replies: deque[tuple[str, ReplyDone]] = deque(maxlen=REQUESTS)
        self._devices: deque[DeviceSample] = deque(maxlen=READINGS)
        self._readings: dict[str, tuple[Profile, bandwidth.Reading | None]] = {}
        self._looking = asyncio.Lock()
        self._drawn: dict[Section, object] = {}  # what each last showed apart from maps and steps
        self._frames = Frames(self)
        self.span = QComboBox()
        language.bind(self.span.setAccessibleName, "Time shown")
        for span_s in SPANS_S:
            self.span.addItem("", span_s)
        self.span.currentIndexChanged.connect(self.touch)
        self.empty = label(role="muted", wrap=True)
        self.acceptance, self.cache, self.steps = Acceptance(), Cache(), Steps()
        self.first, self.between, self.speed, self.device = FirstToken(), BetweenTokens(), Speed(), Device()
        self.sections: tuple[Section, ...] = (
            self.acceptance, self.cache, self.first, self.between, self.speed, self.steps, self.device,
        )  # fmt: skip
        self.inside = QWidget()
        parts = [(Sentence("Live"), self.inside), *((section.title, section) for section in self.sections)]
        self.export = ExportMenu(tasks, parts, self._names, self._table, self.redraw)
        self._lay_out()
        for section in self.sections:
            section.toggled.connect(self._draw_anew)
        for signal in (engines.changed, engines.sampled):
            signal.connect(self.touch)
        for signal in (language.changed, theme.changed):
            signal.connect(self._draw_anew)
        language.changed.connect(self._name_spans)
        self._name_spans()
        self.redraw()

    def add_reply(self, side: str, reply: ReplyDone) -> None:
        """One request of the chat has ended: it becomes a point."""
        assert side in SIDES, side
        self._replies.append((side, reply))
        self.touch()

    def add_devices(self, sample: DeviceSample) -> None:
        """A new reading of this machine."""
        self._devices.append(sample)
        self.touch()

    def touch(self, *_changed) -> None:
        """Something changed: redraw within a frame, or when the panel is seen again."""
        self._frames.touch()

    def redraw(self) -> None:
        """Draw from the engines' runs, the replies and the readings; what came ten times a second alone, if no more."""
        shown = self._shown()
        some = bool(shown.runs or shown.replies)
        self.empty.setVisible(not some)
        if any(self._engines.is_running(side) for side in SIDES):
            language.bind(self.empty.setText, "The engine is loading: its figures appear when it is ready.")
        else:
            language.bind(self.empty.setText, "Start an engine: its figures appear here while it works.")
        self.export.setEnabled(some)
        state = self._state(shown)
        last = shown.devices[-1].at_s if shown.devices else None
        for section in self.sections:
            section.setVisible(some)
            drawn = (state, last) if section is self.device else (state, None)
            if not (some and section.opened):
                continue
            if self._drawn.get(section) == drawn:
                section.draw_quick(shown)
            else:
                section.draw(shown)
                self._drawn[section] = drawn

    @property
    def runs(self) -> dict[str, EngineRun]:
        """The runs that have figures, by key: a side, or each leg of a separated one."""
        return self._shown().runs

    # -- inside

    def _table(self) -> Callable[[], str]:
        return partial(table.text, table.snapshot(self.runs), list(self._devices))

    def _names(self) -> dict[str, str]:
        """The models by side, as a picture names them."""
        names = {}
        for side in self._shown().whole:
            profile, endpoint = self._engines.profile(side), self._engines.endpoint(side)
            if name := Path(profile.model).name if profile else endpoint and endpoint.model:
                names[side] = name
        return names

    def _shown(self) -> Shown:
        whole = {side: self._engines.run(side) for side in SIDES if self._has_figures(side)}
        readings = {side: read for side in whole if (read := self._reading(side))}
        return Shown(
            runs=dict(_by_leg(whole)),
            whole=whole,
            replies=self._replies,
            devices=self._devices,
            readings=readings,
            span_s=float(self.span.currentData()),
        )

    def _state(self, shown: Shown) -> object:
        """Equal as long as nothing but maps and steps came."""
        runs = [(key, id(run), run.state, len(run.series.at_s), run.sample and run.sample.at_s, run.usage_only,
                 bool(run.blocks.latest), bool(run.steps.at_s), run.requests.at_s and run.requests.at_s[-1])
                for key, run in shown.runs.items()]  # fmt: skip
        running = [self._engines.is_running(side) for side in SIDES]
        last = id(shown.replies[-1]) if shown.replies else None
        return runs, running, len(shown.replies), last, list(shown.readings), shown.span_s

    def _draw_anew(self, *_changed) -> None:
        self._drawn.clear()
        self.touch()

    def _reading(self, side: str) -> bandwidth.Reading | None:
        """What a step reads, found out once for each profile: files and the driver are asked aside."""
        profile = self._engines.profile(side)
        if profile is None:  # an engine that others started
            return None
        known, read = self._readings.get(side, (None, None))
        if known != profile:
            self._readings[side] = (profile, None)
            self._look_up(side, profile)
        return read if known == profile else None

    def _look_up(self, side: str, profile: Profile) -> None:

        async def look() -> None:
            async with self._looking:  # the first look measures the memory, and two at once would halve it
                read = await asyncio.to_thread(bandwidth.reading, profile)
            if self._readings[side][0] == profile:
                self._readings[side] = (profile, read)
                self.touch()

        self._tasks.start(look())

    def _has_figures(self, side: str) -> bool:
        run = self._engines.run(side)
        legs = any(leg.series.at_s for leg in run.legs.values())
        return self._engines.state(side) == "ready" or legs or bool(run.series.at_s)

    def _lay_out(self) -> None:
        self.inside.setObjectName("ground")
        column = QVBoxLayout(self.inside)
        column.setContentsMargins(16, 0, 12, 12)
        column.setSpacing(8)
        column.addWidget(self.empty)
        for section in self.sections:
            column.addWidget(section)
        column.addStretch(1)
        head = QHBoxLayout()
        head.setContentsMargins(16, 12, 12, 0)
        head.setSpacing(4)
        head.addWidget(label("Live", "section"), 1)
        head.addWidget(self.export)
        head.addWidget(self.span)
        scroll = QScrollArea(widgetResizable=True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(self.inside)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addLayout(head)
        whole.addWidget(self.export.told)
        whole.addWidget(scroll, 1)

    def _name_spans(self) -> None:
        for index, span_s in enumerate(SPANS_S):
            self.span.setItemText(index, say("last {minutes} min", minutes=span_s // 60))


def _by_leg(whole: dict[str, EngineRun]) -> Iterator[tuple[str, EngineRun]]:
    """A separated side's front has no figures of its own: its legs have."""
    for side, run in whole.items():
        if run.legs:
            yield from ((f"{side}/{leg}", of_leg) for leg, of_leg in run.legs.items())
        else:
            yield side, run
