"""What an engine and a reply are now, as the sum of their events."""

from collections import deque
from dataclasses import dataclass, field, fields

from workbench.core_events import BlockMap, RequestsDone, StepsDone, UsageOnly
from workbench.engine.metrics import Rates, rates, since
from workbench.engine_events import (
    EngineConnected,
    EngineLog,
    EngineMemory,
    EnginePhase,
    EngineReady,
    EngineSample,
    EngineStopped,
    StartExpected,
)
from workbench.events import Event, Failed, LegEvent, Note, ReplyDone, ReplyFailed, ReplyStarted, ReplyText
from workbench.measure.recorded import Blocks, Requests, Steps
from workbench.words import Sentence

LOG_LINES = 2000
POINTS = 3600  # an hour at one sample a second; what the live panel can show


def _points() -> deque:
    return deque(maxlen=POINTS)


@dataclass(slots=True)
class Series:
    """Points of the live panel, all of the same length; None where there was nothing to measure (a gap).

    `at_s` is the clock of the samples; `kv_usage` and `acceptance` are shares; `mean_accepted` tokens per drafting
    step; `ttft_s`, `inter_token_s` and `queue_s` means of the requests that reported in the interval, `preempted` and
    `external_tokens` what was counted in it, `prefix_hits` a share of what was looked up in it.
    """

    at_s: deque[float] = field(default_factory=_points)
    kv_usage: deque[float | None] = field(default_factory=_points)
    acceptance: deque[float | None] = field(default_factory=_points)
    mean_accepted: deque[float | None] = field(default_factory=_points)
    tokens_per_s: deque[float | None] = field(default_factory=_points)
    prompt_per_s: deque[float | None] = field(default_factory=_points)
    ttft_s: deque[float | None] = field(default_factory=_points)
    inter_token_s: deque[float | None] = field(default_factory=_points)
    running: deque[float | None] = field(default_factory=_points)
    waiting: deque[float | None] = field(default_factory=_points)
    queue_s: deque[float | None] = field(default_factory=_points)
    preempted: deque[float | None] = field(default_factory=_points)
    prefix_hits: deque[float | None] = field(default_factory=_points)
    external_tokens: deque[float | None] = field(default_factory=_points)
    steps_per_s: deque[float | None] = field(default_factory=_points)
    acceptance_by_position: deque[tuple[float, ...]] = field(default_factory=_points)

    def add(self, sample: EngineSample, now: Rates) -> None:
        """One more point in every line."""
        for name in ("at_s", "kv_usage", "running", "waiting"):
            getattr(self, name).append(getattr(sample, name))
        for each in fields(now):
            getattr(self, each.name).append(getattr(now, each.name))


@dataclass(slots=True)
class EngineRun:
    """One engine. `state` is stopped, starting, ready or failed.

    `speculates` is None until the engine's figures tell whether it drafts at all. `expected` is what each phase of
    the start took in earlier ones, in seconds; empty where there were none. `connected` is set in place of `ready` for
    a server that somebody else runs. `memory` is what it says it takes. `sample` counts from when the engine was
    ready: the sample that comes before holds its warm-up. `legs` are the engines behind a front, by name; empty for an
    engine of its own.
    """

    state: str = "stopped"
    expected: dict[str, float] = field(default_factory=dict)
    phases: list[EnginePhase] = field(default_factory=list)
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    notes: list[Note] = field(default_factory=list)
    ready: EngineReady | None = None
    connected: EngineConnected | None = None
    memory: EngineMemory = field(default_factory=EngineMemory)
    error: Failed | None = None
    sample: EngineSample | None = None
    rates: Rates = field(default_factory=Rates)
    series: Series = field(default_factory=Series)
    acceptance_by_position: tuple[float, ...] = ()
    legs: "dict[str, EngineRun]" = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)
    requests: Requests = field(default_factory=Requests)
    blocks: Blocks = field(default_factory=Blocks)
    usage_only: Sentence | None = None
    _counted: EngineSample | None = None
    _warmup: EngineSample | None = None

    def apply(self, event: Event) -> None:
        """Take one event of this engine's start, life or end."""
        match event:
            case EngineLog(text):
                self.log.append(text)
            case StartExpected(seconds):
                self.expected = seconds
            case EnginePhase():
                self.state = "starting"
                self.phases.append(event)
            case EngineMemory():
                self.memory = event
            case EngineReady():
                self.state, self.ready = "ready", event
            case EngineConnected():
                self.state, self.connected = "ready", event
            case EngineSample() if self.state == "starting":
                self._warmup = event
            case EngineSample():
                self._measure(event)
            case StepsDone() if not self._is_warmup(event):
                self.steps.add(event)
            case RequestsDone() if not self._is_warmup(event):
                self.requests.add(event)
            case BlockMap():
                self.blocks.add(event)
                self.usage_only = None
            case UsageOnly(reason, values):
                self.usage_only = Sentence(reason, values)
            case Note():
                self.notes.append(event)
            case Failed():
                self.state, self.error = "failed", event
            case LegEvent(leg, own):
                self.legs.setdefault(leg, EngineRun()).apply(own)
            case EngineStopped():
                self.state = "failed" if self.error else "stopped"

    @property
    def speculates(self) -> bool | None:
        return None if self._counted is None else self._counted.drafts is not None

    def _is_warmup(self, done: StepsDone | RequestsDone) -> bool:
        """Whether it is of the time before the engine was ready: what that counted is not the user's."""
        return self.state == "starting" or bool(self._warmup and done.at_s and done.at_s[-1] <= self._warmup.at_s)

    def _measure(self, sample: EngineSample) -> None:
        # After polls without an answer the counters are compared over the gap: what happened meanwhile is not lost.
        self.rates = rates(self._counted, sample) if self._counted else Rates()
        if sample != EngineSample(sample.at_s):
            self._counted = sample
        if self.rates.acceptance_by_position:
            self.acceptance_by_position = self.rates.acceptance_by_position
        self.series.add(sample, self.rates)
        self.sample = sample
        if self._warmup:
            if left := since(self._warmup, sample):
                self.sample = left
            else:
                self._warmup = None


@dataclass(slots=True)
class Reply:
    """One answer of one model. `state` is waiting, streaming, done, stopped, failed or interrupted.

    `text` is the answer as the model wrote it, `reasoning` what the server sent apart from it.
    """

    model: str = ""
    state: str = "waiting"
    done: ReplyDone | None = None
    error: ReplyFailed | None = None
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        """Take one event of the stream."""
        match event:
            case ReplyStarted():
                self.state = "waiting"
            case ReplyText(text, _, reasoning):
                self.state = "streaming"
                (self._reasoning if reasoning else self._text).append(text)
            case ReplyDone(reason):
                self.state, self.done = ("stopped" if reason == "stopped" else "done"), event
            case ReplyFailed():
                self.state, self.error = "failed", event

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self.state in ("waiting", "streaming")

    @property
    def text(self) -> str:
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        return _joined(self._reasoning)


def _joined(pieces: list[str]) -> str:
    """The pieces as one text; kept joined, so that asking often while it grows stays cheap."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""
