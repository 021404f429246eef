"""A quantization as it stands: the fold of its events, live or replayed from its job folder."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.events import (
    Advanced,
    Cancelled,
    Event,
    Failed,
    Finished,
    ModuleDone,
    ModuleStarted,
    Note,
    QualityMeasured,
    Stage,
)


@dataclass(slots=True)
class QuantRun:
    """`apply` folds an event in; everything else only reads.

    `stage` is a template, `done` of `total` its steps (0: unknown). `working` is the layer at hand and `block` its
    block. Times are by `clock` in seconds; a replayed run has none, so its `clock` is None.
    """

    clock: Callable[[], float] | None = time.monotonic
    stage: str = ""
    total: int = 0
    done: int = 0
    block: int | None = None
    working: str | None = None
    modules: dict[str, ModuleDone] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    quality: list[QualityMeasured] = field(default_factory=list)
    path: str = ""
    size: int = 0
    error: Failed | None = None
    cancelled: bool = False
    started_s: float | None = None
    ended_s: float | None = None
    _stage_started_s: float | None = None

    def apply(self, event: Event) -> None:
        """Fold one event in; kinds of other jobs are passed over."""
        now = self.clock() if self.clock else None
        if self.started_s is None:
            self.started_s = now
        match event:
            case Stage(name, total):
                self.stage, self.total, self.done = name, total, 0
                self.working = None
                self._stage_started_s = now
            case Advanced(done):
                self.done = done
            case ModuleStarted(name, block):
                self.working, self.block = name, block
            case ModuleDone():
                self.modules[event.name] = event
                self.working = None
            case Note():
                self.notes.append(event)
            case QualityMeasured():
                self.quality.append(event)
            case Finished(path, size):
                self.path, self.size = path, size
            case Failed():
                self.error = event
            case Cancelled():
                self.cancelled = True
        if isinstance(event, Finished | Failed | Cancelled):
            self.working, self.ended_s = None, now

    @property
    def ended(self) -> bool:
        return bool(self.path or self.error or self.cancelled)

    @property
    def progress(self) -> float | None:
        """The share of the stage that is done, 0 to 1; None where its length is not known."""
        return min(self.done / self.total, 1.0) if self.total else None

    @property
    def elapsed_s(self) -> float | None:
        """Since the first event, until the end."""
        if self.started_s is None or self.clock is None:
            return None
        return (self.ended_s if self.ended_s is not None else self.clock()) - self.started_s

    @property
    def eta_s(self) -> float | None:
        """What is left of the stage at its own pace; None before its first step and after the end."""
        if self.ended or not self.done or not self.total or self.clock is None or self._stage_started_s is None:
            return None
        return (self.clock() - self._stage_started_s) / self.done * max(self.total - self.done, 0)
