"""Every event that a job, an engine or a stream reports, and its form as one line of JSON.

Those of quantization, of engines and of what is seen inside an engine core have files of their own. Numbers that could
not be measured are None. Times are seconds; `at_s` is the monotonic clock of the reporter.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from workbench.core_events import BlockMap, RequestsDone, StepsDone, UsageOnly
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
from workbench.quant_events import (
    Amended,
    Checked,
    Histogram,
    ModuleDone,
    ModuleStarted,
    MomentsKept,
    QualityMeasured,
    SensitivityMeasured,
    WhatIf,
    WhatIfRefused,
)

# -- any job ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """The job entered a new part; `total` steps are expected in it (0: unknown). `name` is a template."""

    name: str
    total: int = 0


@dataclass(frozen=True, slots=True)
class Advanced:
    """`done` steps of the current stage are finished."""

    done: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know, as a template and its values. `level` is info or warning."""

    message: str
    values: dict[str, Any] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Finished:
    """The result lies at `path`, complete and verified; `size` is that of its weights, in bytes."""

    path: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended without a result. Templates with one set of values; `details` is for the log."""

    message: str
    hint: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    details: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The user ended the job; nothing of it was kept."""


# -- chat ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The request was sent."""

    at_s: float


@dataclass(frozen=True, slots=True)
class ReplyText:
    """A piece of the answer arrived; `reasoning` when it belongs to the thinking part."""

    text: str
    at_s: float
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The stream ended well or was stopped. Seconds by the client's clock; tokens as the server counted them.

    `reason` is stop, length, tool_calls or stopped. `ttft_s` is to the first text of any kind, `tokens_per_s` over the
    tokens after the first chunk. `accepted` and `drafted` are the draft tokens of this reply where the engine
    tells; `mean_accepted` is tokens gained per drafting step (1 + accepted ÷ drafts).
    """

    reason: str
    ttft_s: float | None
    answer_s: float | None
    total_s: float
    prompt_tokens: int | None
    tokens: int | None
    tokens_per_s: float | None
    accepted: int | None = None
    drafted: int | None = None
    mean_accepted: float | None = None


@dataclass(frozen=True, slots=True)
class ReplyFailed:
    """The stream broke; what was received stays."""

    message: str
    hint: str = ""
    values: dict[str, Any] = field(default_factory=dict)


# -- any of these, from one of several engines ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LegEvent:
    """What one engine of several that serve together reports; `leg` is its name there. Not written to files."""

    leg: str
    event: "Event"


Event = (
    Stage
    | Advanced
    | Note
    | Finished
    | Failed
    | Cancelled
    | ModuleStarted
    | ModuleDone
    | Histogram
    | MomentsKept
    | WhatIf
    | WhatIfRefused
    | SensitivityMeasured
    | QualityMeasured
    | Checked
    | Amended
    | EngineLog
    | StartExpected
    | EnginePhase
    | EngineMemory
    | EngineReady
    | EngineConnected
    | EngineStopped
    | EngineSample
    | BlockMap
    | StepsDone
    | RequestsDone
    | UsageOnly
    | LegEvent
    | ReplyStarted
    | ReplyText
    | ReplyDone
    | ReplyFailed
)

_KINDS = {kind.__name__: kind for kind in Event.__args__}


def encode(event: Event) -> str:
    """One line of JSON, without the line break. NaN and infinity are refused: JSON has no word for them."""
    given = {"kind": type(event).__name__, **asdict(event)}
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(line: str) -> Event:
    """The event of a line that `encode` wrote, of another version of ours too: fields that are gone are left out."""
    given = json.loads(line)
    kind = _KINDS[given.pop("kind")]
    known = {field.name for field in fields(kind)}
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if key in known}
    return kind(**values)
