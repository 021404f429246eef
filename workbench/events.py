"""Every event that a job, an engine or a stream reports, and its form as one line of JSON.

Numbers that could not be measured are None. Times are seconds; `at_s` is the monotonic clock of the reporter.
"""

import base64
import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

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


# -- quantization ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModuleStarted:
    """Work on one linear layer begins."""

    name: str
    block: int


@dataclass(frozen=True, slots=True)
class ModuleDone:
    """One linear layer is quantized and packed.

    `before` and `after` are counts over equal bins between `low` and `high`; each sums to the number of finite
    weights, values outside the range counted in the end bins. `after` is read back from the packed tensor.
    `levels` are the grid's values of a typical group, ascending. Errors are relative squared errors:
    weight ‖W-Q‖²/‖W‖², output tr(ΔW H ΔWᵀ)/tr(W H Wᵀ); `plain_output_error` is that of plain rounding (RTN) at
    the same bits, group and symmetry. `sqnr_db` = -10·log10(output_error). `tokens` of the calibration reached it;
    few only where a router sends them elsewhere. `unrefined_error` is the output error before refinement.
    """

    name: str
    block: int
    method: str
    bits: int
    group_size: int
    symmetric: bool
    shape: tuple[int, int]
    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    levels: tuple[float, ...]
    not_finite: int
    weight_error: float
    output_error: float | None
    plain_output_error: float | None
    sqnr_db: float | None
    kurtosis: float
    outliers: float
    clipped: float
    seconds: float
    scale_low: float | None = None
    scale_high: float | None = None
    damping: float | None = None
    fallback: str = ""
    tokens: int | None = None
    unrefined_error: float | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of one tensor's values over equal bins, made before any run."""

    name: str
    shape: tuple[int, ...]
    low: float
    high: float
    counts: tuple[int, ...]
    not_finite: int
    kurtosis: float
    outliers: float


@dataclass(frozen=True, slots=True)
class MomentsKept:
    """The calibration statistics of one block are on disk; `estimated` names the layers of which only the blocks on
    the diagonal are kept, for want of space."""

    block: int
    tokens: int
    estimated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a choice would do to one linear layer; the answer to request `id`, by which later answers are known.

    Fields as in `ModuleDone`. The errors are measured on `rows` of the layer's outputs, evenly spread; an answer
    that is not `final` is followed by one on all of them. `compensated` is False while GPTQ's rounding stands in as
    plain rounding on the same grid. `output_error` is None where no calibration statistics are kept; `estimated`
    where those are the diagonal's blocks alone. `bytes` is the stored size of the layer, `plain_output_error` plain
    rounding's at the same bits, group and symmetry.
    """

    id: int
    module: str
    method: str
    bits: int
    group_size: int
    symmetric: bool
    shape: tuple[int, int]
    bytes: int
    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    levels: tuple[float, ...]
    not_finite: int
    weight_error: float
    output_error: float | None
    plain_output_error: float | None
    kurtosis: float
    outliers: float
    clipped: float
    rows: int
    final: bool
    compensated: bool
    estimated: bool
    seconds: float
    scale_low: float | None = None
    scale_high: float | None = None
    damping: float | None = None
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class WhatIfRefused:
    """Request `id` cannot be answered; templates with one set of values."""

    id: int
    module: str
    message: str
    hint: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SensitivityMeasured:
    """What plain rounding of one linear layer alone would cost, by "bits/group size" such as "4/64".

    `damage` is the predicted KL divergence in nats per token, `output_errors` the relative output error. The recipe's
    own group size is `group_size`. `remaining` is the share of that damage which a method is expected to leave.
    """

    name: str
    block: int
    group_size: int
    symmetric: bool
    damage: dict[str, float]
    output_errors: dict[str, float]
    remaining: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QualityMeasured:
    """One candidate against the original on the same held tokens; KL in nats per token."""

    name: str
    tokens: int
    kl: float
    perplexity: float
    original_perplexity: float
    top1_agreement: float


@dataclass(frozen=True, slots=True)
class Checked:
    """One check of the written result. `name` and `detail` are templates with one set of values."""

    name: str
    passed: bool
    detail: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amended:
    """The recipe (plain values) changed for the blocks from `from_block` on; it now says what all blocks get."""

    from_block: int
    recipe: dict[str, Any]


# -- engine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineLog:
    """One line of the engine's output."""

    text: str


@dataclass(frozen=True, slots=True)
class StartExpected:
    """What each phase of the start that begins took in earlier starts of this model and profile, in seconds."""

    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class EnginePhase:
    """The engine's start entered a phase: starting, weights, compile, kv, graphs, warmup."""

    name: str
    at_s: float


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The engine answers at `url` (…/v1 is below it); it proved to be ours by its key and model name.

    `seconds` from its start until it answered, `warmup_s` those of the warm-up request after that; None: it failed.
    """

    url: str
    key: str
    model: str
    pid: int
    seconds: float
    warmup_s: float | None = None

    @property
    def warm_s(self) -> float | None:
        """The seconds from its start until it was warmed up."""
        return None if self.warmup_s is None else self.seconds + self.warmup_s


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What an engine takes of its device, in bytes, by its own words and by what its processes hold once it is ready.

    `weights` include a draft's. `overhead` is all beside weights, activations, graphs and cache. The cache holds
    `kv_tokens`, which are `concurrency` conversations of `context` tokens. `total` is the device's memory as the
    engine counts it, `others` what others held of it when the engine was ready. None where nothing tells.
    """

    weights: int | None = None
    activations: int | None = None
    graphs: int | None = None
    overhead: int | None = None
    kv_bytes: int | None = None
    kv_tokens: int | None = None
    context: int | None = None
    concurrency: float | None = None
    total: int | None = None
    others: int | None = None


@dataclass(frozen=True, slots=True)
class EngineConnected:
    """A server that somebody else runs answers at `url` (…/v1 is below it) and has these `models`.

    `version` is vLLM's, "" where it is vLLM but does not tell, None for another server. `has_metrics` says whether it
    shows its figures, `context` is how many tokens the model takes, None where that is not told.
    """

    url: str
    key: str
    model: str
    models: tuple[str, ...]
    version: str | None = None
    has_metrics: bool = False
    context: int | None = None


@dataclass(frozen=True, slots=True)
class EngineStopped:
    """The engine ended on request."""


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One poll of /metrics. Totals are raw counters; None where this engine has no such figure.

    `accepted_per_position` holds totals by draft position. Histograms come as (sum in seconds, count), of `steps` as
    (sum in tokens, count); `buckets` has (upper bound in seconds, how many up to it) of some by field. Prompt tokens
    looked up in the prefix cache are `prefix_queries`, those found `prefix_hits`; `external_tokens` came from another
    engine's cache.
    """

    at_s: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    kv_blocks: int | None = None
    kv_block_size: int | None = None
    kv_tokens: int | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    preemptions: float | None = None
    ttft: tuple[float, float] | None = None
    inter_token: tuple[float, float] | None = None
    queue: tuple[float, float] | None = None
    steps: tuple[float, float] | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    external_tokens: float | None = None
    buckets: dict[str, tuple[tuple[float | None, float], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LegEvent:
    """What one engine of several that serve together reports; `leg` is its name there. Not written to files."""

    leg: str
    event: "Event"


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Every block of one engine core's KV cache at one moment; the caches of several groups share these blocks.

    `packed` is base64 of zlib of one byte a block, in the order of their numbers: the low seven bits are how many
    requests hold it (126: that many or more; `NULL`: the block that vLLM keeps for itself), the high bit `HASHED` that
    its content can be found again. So 0 is free, HASHED alone free and still cached. `used` are the held blocks (so
    vLLM's usage is used / (total - 1)), `cached` the free ones with a hash. `unfilled` are the token slots in the
    running requests' blocks that hold no token yet; None with several groups, whose blocks are not of one size.
    `rank` is the core's number in data parallel.
    """

    NULL: ClassVar[int] = 127
    HASHED: ClassVar[int] = 128

    at_s: float
    total: int
    used: int
    cached: int
    packed: str
    block_size: int | None = None
    unfilled: int | None = None
    groups: int = 1
    rank: int = 0

    @property
    def states(self) -> bytes:
        """The byte of each block [total]."""
        return zlib.decompress(base64.b64decode(self.packed))


@dataclass(frozen=True, slots=True)
class StepsDone:
    """Steps that one engine core has computed since its last report, as columns of one length.

    `at_s` is a step's end. `prefill` counts the prompt tokens that it computed (what a preempted request computes anew
    too), `decode` the positions of requests that already answer (their drafts included), `output` the tokens that came
    out, `requests` those that took part (the batch), `running` and `waiting` those at the step's end, `preempted` those
    put back by this step. `missed` steps before these were not kept: nobody fetched them.
    """

    at_s: tuple[float, ...]
    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    output: tuple[int, ...]
    requests: tuple[int, ...]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    preempted: tuple[int, ...]
    missed: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class RequestsDone:
    """Requests that ended in one engine core since its last report, whoever sent them, as columns of one length.

    By the core's clock: `queue_s` from arrival to the first step, `first_s` from there to the first token, `between_s`
    the mean from one token to the next after it (None with one token), `tokens` those that came out. Their sum
    queue_s + first_s is the time to first token without what the HTTP server adds. Aborted requests are left out.
    """

    at_s: tuple[float, ...]
    queue_s: tuple[float | None, ...]
    first_s: tuple[float | None, ...]
    between_s: tuple[float | None, ...]
    tokens: tuple[int, ...]
    rank: int = 0


@dataclass(frozen=True, slots=True)
class UsageOnly:
    """This engine tells how full its KV cache is, but not which block holds what, nor its steps; a template why."""

    reason: str
    values: dict[str, Any] = field(default_factory=dict)


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
    fields = {"kind": type(event).__name__, **asdict(event)}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(line: str) -> Event:
    """The event of a line that `encode` wrote."""
    fields = json.loads(line)
    kind = _KINDS[fields.pop("kind")]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
