"""How far a job is that has nothing to show but its steps."""

import time
from dataclasses import dataclass, field

from workbench.events import Advanced, Event, Failed, Finished, Note, Stage


@dataclass(slots=True)
class Progress:
    """The fold of a job's common events; `stage` is a template, `total` 0 where the steps are not known."""

    stage: str = ""
    done: int = 0
    total: int = 0
    notes: list[Note] = field(default_factory=list)
    path: str = ""
    error: Failed | None = None
    _started_s: float = 0.0
    _latest_s: float = 0.0

    @property
    def share(self) -> float | None:
        """The part of the stage that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else None

    def left_s(self, now_s: float | None = None) -> float | None:
        """Seconds until the present stage ends, by the pace so far; None before its first step is done."""
        if not self.total or not self.done:
            return None
        now_s = time.monotonic() if now_s is None else now_s
        pace = (self._latest_s - self._started_s) / self.done
        return max(0.0, pace * (self.total - self.done) - max(0.0, now_s - self._latest_s))

    def apply(self, event: Event, at_s: float | None = None) -> None:
        """Take one event; `at_s` is when it came, in monotonic seconds, by default now."""
        match event:
            case Stage(name, total):
                self.stage, self.total, self.done = name, total, 0
                self._started_s = self._latest_s = time.monotonic() if at_s is None else at_s
            case Advanced(done):
                self.done = done
                self._latest_s = time.monotonic() if at_s is None else at_s
            case Note():
                self.notes.append(event)
            case Finished(path):
                self.path = path
            case Failed():
                self.error = event
