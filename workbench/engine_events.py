"""What the start, the memory and /metrics of an engine tell; see events.py."""

from dataclasses import dataclass


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
    engine counts it, `others` what others held of it when the engine was ready. `set_aside` is what the engine kept
    back for `graphs` when it sized its cache: they may take more, which then lies beside its share of the device. None
    where nothing tells.
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
    set_aside: int | None = None


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
    (sum in tokens, count). Prompt tokens looked up in the prefix cache are `prefix_queries`, those found `prefix_hits`;
    `external_tokens` came from another engine's cache.
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
