"""An engine's /metrics page → EngineSample; two samples → rates."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from prometheus_client.parser import text_string_to_metric_families

from workbench.engine_events import EngineSample
from workbench.errors import WorkbenchError

# vLLM's names have changed between releases: they appear here and nowhere else, today's first.
GAUGES = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
COUNTERS = {
    "drafts": ("vllm:spec_decode_num_drafts",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens",),
    "prompt_tokens": ("vllm:prompt_tokens",),
    "generated_tokens": ("vllm:generation_tokens",),
    "preemptions": ("vllm:num_preemptions",),
    "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "external_tokens": ("vllm:external_prefix_cache_hits",),
}
HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "inter_token": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "queue": ("vllm:request_queue_time_seconds",),
    "steps": ("vllm:iteration_tokens_total",),
}
# Prompt tokens by where their cache came from; the newer name for what `external_tokens` counts.
BY_SOURCE, EXTERNAL = "vllm:prompt_tokens_by_source_total", "external_kv_transfer"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
CACHE_CONFIG = "vllm:cache_config_info"
CACHE_LABELS = {"kv_blocks": "num_gpu_blocks", "kv_block_size": "block_size", "kv_tokens": "kv_cache_size_tokens"}

_WANTED = frozenset(
    [name for names in GAUGES.values() for name in names]
    + [name + end for names in COUNTERS.values() for name in names for end in ("", "_total")]
    + [name + end for names in HISTOGRAMS.values() for name in names for end in ("_sum", "_count")]
    + [BY_SOURCE, PER_POSITION, CACHE_CONFIG]
)

Labelled = list[tuple[dict[str, str], float]]


def read_engine(text: str, at_s: float) -> EngineSample:
    """Read the page's text. With several engines behind one server counters are summed, of gauges the largest counts.

    `kv_usage` is a share, 0 to 1. What the page does not have stays None. Raises WorkbenchError on a page that is not
    as vLLM writes it.
    """
    try:
        return _read(text, at_s)
    except (ValueError, LookupError) as error:
        raise WorkbenchError(
            "The engine's figures cannot be read: {reason}", "The live graphs pause until they can.", reason=str(error)
        ) from error


def _read(text: str, at_s: float) -> EngineSample:
    found = _samples(text)
    values: dict[str, object] = {}
    for field, names in GAUGES.items():
        values[field] = _first(found, names, ("",), max)
    for field, names in COUNTERS.items():
        values[field] = _first(found, names, ("_total", ""), sum)
    for field, names in HISTOGRAMS.items():
        total, count = _first(found, names, ("_sum",), sum), _first(found, names, ("_count",), sum)
        values[field] = None if total is None or count is None else (total, count)
    if known := [value for labels, value in found.get(BY_SOURCE, ()) if labels.get("source") == EXTERNAL]:
        values["external_tokens"] = sum(known)
    for labels, _ in found.get(CACHE_CONFIG, ()):
        for field, label in CACHE_LABELS.items():
            if labels.get(label, "").isdecimal():
                # Each engine has a cache of its own, all alike.
                values[field] = int(labels[label])
    return EngineSample(at_s=at_s, accepted_per_position=_per_position(found.get(PER_POSITION, [])), **values)


def is_vllm(text: str) -> bool:
    """Whether this is vLLM's page: others show figures as well."""
    return "vllm:" in text


def _samples(text: str) -> dict[str, Labelled]:
    """The wanted samples by name. Other lines are dropped first: the parser is slow and the page long."""
    lines = [line for line in text.splitlines() if line[: _name_end(line)] in _WANTED]
    found: dict[str, Labelled] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if math.isfinite(sample.value):
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def _name_end(line: str) -> int:
    for end, character in enumerate(line):
        if character in "{ ":
            return end
    return len(line)


def _first(
    found: dict[str, Labelled], names: tuple[str, ...], ends: tuple[str, ...], combine: Callable
) -> float | None:
    for name in names:
        for end in ends:
            if samples := found.get(name + end):
                return combine(value for _, value in samples)
    return None


def _per_position(samples: Labelled) -> tuple[float, ...]:
    totals: dict[int, float] = {}
    for labels, value in samples:
        position = int(labels["position"])
        totals[position] = totals.get(position, 0.0) + value
    return tuple(totals.get(position, 0.0) for position in range(max(totals, default=-1) + 1))


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened between two samples. None where nothing can be said: nothing drafted, no request, a restart.

    `acceptance` is accepted ÷ drafted tokens, `acceptance_by_position` the share of drafts accepted at each position,
    `mean_accepted` tokens gained per drafting step (1 + accepted ÷ drafts). `ttft_s` and `inter_token_s` are means
    over what finished in between, `queue_s` that of the time before the first step. `preempted` counts requests put
    back, `external_tokens` prompt tokens whose cache came from another engine; `prefix_hits` is the share of looked-up
    prompt tokens that were cached; `steps_per_s` counts steps with output.
    """

    acceptance: float | None = None
    acceptance_by_position: tuple[float, ...] = ()
    mean_accepted: float | None = None
    tokens_per_s: float | None = None
    prompt_per_s: float | None = None
    ttft_s: float | None = None
    inter_token_s: float | None = None
    queue_s: float | None = None
    preempted: float | None = None
    prefix_hits: float | None = None
    external_tokens: float | None = None
    steps_per_s: float | None = None


def rates(previous: EngineSample, current: EngineSample) -> Rates:
    """The differences of two samples over their time. A counter that fell means a restarted engine: no rates then."""
    seconds = current.at_s - previous.at_s
    gained = {field: _gained(getattr(previous, field), getattr(current, field)) for field in COUNTERS}
    parts = {field: _gained_pair(getattr(previous, field), getattr(current, field)) for field in HISTOGRAMS}
    known = [gain for gain in gained.values() if gain is not None] + [gain for pair in parts.values() for gain in pair]
    if seconds <= 0 or any(gain < 0 for gain in known):
        return Rates()
    drafts, drafted, accepted = gained["drafts"], gained["draft_tokens"], gained["accepted_tokens"]
    by_position = ()
    if drafts and len(previous.accepted_per_position) == len(current.accepted_per_position):
        pairs = zip(previous.accepted_per_position, current.accepted_per_position, strict=True)
        by_position = tuple((now - before) / drafts for before, now in pairs)
    return Rates(
        acceptance=accepted / drafted if drafted and accepted is not None else None,
        acceptance_by_position=by_position,
        mean_accepted=1 + accepted / drafts if drafts and accepted is not None else None,
        tokens_per_s=_over(gained["generated_tokens"], seconds),
        prompt_per_s=_over(gained["prompt_tokens"], seconds),
        ttft_s=_over(*parts["ttft"]) if parts["ttft"] else None,
        inter_token_s=_between_tokens_s(parts["inter_token"], parts["ttft"], gained["generated_tokens"]),
        queue_s=_over(*parts["queue"]) if parts["queue"] else None,
        preempted=gained["preemptions"],
        prefix_hits=_over(gained["prefix_hits"], gained["prefix_queries"] or 0),
        external_tokens=gained["external_tokens"],
        steps_per_s=_over(parts["steps"][1], seconds) if parts["steps"] else None,
    )


def _between_tokens_s(steps: tuple[float, ...], firsts: tuple[float, ...], tokens: float | None) -> float | None:
    """Seconds a token. vLLM times the steps of a request, each of which brings several tokens where it drafts."""
    if not steps or not steps[1]:
        return None
    later = (tokens or 0) - (firsts[1] if firsts else 0)
    return steps[0] / max(steps[1], later)


def since(start: EngineSample, sample: EngineSample) -> EngineSample | None:
    """`sample` without what had been counted at `start`; None when a counter fell below that: the engine restarted."""
    counters = {field: _without(getattr(start, field), getattr(sample, field)) for field in COUNTERS}
    pairs = {}
    for field in HISTOGRAMS:
        before, now = getattr(start, field), getattr(sample, field)
        pairs[field] = now and tuple(_without(*each) for each in zip(before or (0.0, 0.0), now, strict=True))
    positions = tuple(map(_without, start.accepted_per_position, sample.accepted_per_position))
    if len(positions) < len(sample.accepted_per_position):
        positions = sample.accepted_per_position
    left = (*counters.values(), *positions, *(value for pair in pairs.values() if pair for value in pair))
    if any(value is not None and value < 0 for value in left):
        return None
    return replace(sample, accepted_per_position=positions, **counters, **pairs)


def _without(before: float | None, now: float | None) -> float | None:
    return None if now is None else now - (before or 0.0)


def _gained(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def _gained_pair(before: tuple[float, float] | None, now: tuple[float, float] | None) -> tuple[float, ...]:
    return () if before is None or now is None else (now[0] - before[0], now[1] - before[1])


def _over(amount: float | None, by: float) -> float | None:
    return None if amount is None or not by else amount / by


assert {*GAUGES, *COUNTERS, *HISTOGRAMS, *CACHE_LABELS} <= {field.name for field in fields(EngineSample)}
