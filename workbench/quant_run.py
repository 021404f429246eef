"""The state of a quantization, folded from its events: live, or replayed from a finished job's file."""

import time
from dataclasses import dataclass, field

from workbench.events import Advanced, Cancelled, Event, Failed, Finished, Note, Stage
from workbench.quant_events import Amended, Checked, ModuleDone, ModuleStarted, QualityMeasured
from workbench.words import Sentence


@dataclass(slots=True)
class QuantRun:
    """`modules` holds what is done by full name, in order; `current` the linear being worked on.

    `total` and `done` count steps of the present stage, `begun` blocks. `failed` is a sentence with its `hint`.
    """

    stage: str = ""
    total: int = 0
    done: int = 0
    current: str = ""
    begun: int = 0
    modules: dict[str, ModuleDone] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    quality: dict[str, QualityMeasured] = field(default_factory=dict)
    checks: list[Checked] = field(default_factory=list)
    amended: list[Amended] = field(default_factory=list)
    path: str = ""
    size: int | None = None
    failed: Sentence | None = None
    hint: Sentence | None = None
    cancelled: bool = False
    _started_s: float = 0.0
    _latest_s: float = 0.0

    def apply(self, event: Event, at_s: float | None = None) -> None:
        """Take one event. `at_s` is when it came (monotonic seconds); replaying leaves it out and needs no ETA."""
        match event:
            case Stage(name, total):
                self.stage, self.total, self.done, self.current = name, total, 0, ""
                self._started_s = self._latest_s = time.monotonic() if at_s is None else at_s
            case Advanced(done):
                self.done = done
                self._latest_s = time.monotonic() if at_s is None else at_s
            case ModuleStarted(name, block):
                self.current = name
                self.begun = max(self.begun, block + 1)
            case ModuleDone(name, block):
                self.modules[name] = event
                self.current = ""
                self.begun = max(self.begun, block + 1)
            case Note():
                self.notes.append(event)
            case QualityMeasured():
                self.quality[event.name] = event
            case Checked():
                self.checks.append(event)
            case Amended():
                self.amended.append(event)
            case Finished(path, size):
                self.path, self.size, self.current = path, size, ""
            case Failed(message, hint, values):
                self.failed = Sentence(message, values)
                self.hint = Sentence(hint, values) if hint else None
                self.current = ""
            case Cancelled():
                self.cancelled, self.current = True, ""

    @property
    def running(self) -> bool:
        """Begun and not ended in any way."""
        return bool(self.stage) and not (self.path or self.failed or self.cancelled)

    @property
    def failed_check(self) -> Checked | None:
        """The check that the written result did not pass."""
        return next((check for check in self.checks if not check.passed), None)

    @property
    def share(self) -> float | None:
        """How much of the present stage is done, 0 to 1; None where its length is not known."""
        return min(self.done / self.total, 1.0) if self.total else None

    def left_s(self, now_s: float | None = None) -> float | None:
        """Seconds until the present stage ends, by the pace so far; None before its first step is done."""
        if not self.running or not self.total or not self.done:
            return None
        pace = (self._latest_s - self._started_s) / self.done
        since = max(0.0, (time.monotonic() if now_s is None else now_s) - self._latest_s)
        return max(0.0, pace * (self.total - self.done) - since)

    @property
    def blocks(self) -> dict[int, dict[str, ModuleDone]]:
        """What is done by block and by the module's last name, for the strip of blocks × modules."""
        found: dict[int, dict[str, ModuleDone]] = {}
        for module in self.modules.values():
            found.setdefault(module.block, {})[module.name.rpartition(".")[2]] = module
        return found
