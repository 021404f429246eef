"""An estimate of what an engine takes, with the engine's own figures laid over it, and why they differ."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from workbench import figures
from workbench.catalog.capacity import Capacity
from workbench.engine.fit import taken_by_token
from workbench.engine_events import EngineMemory
from workbench.words import Sentence

NAMES = {
    "others": Sentence("Other programs"),
    "weights": Sentence("Weights"),
    "both": Sentence("Weights and draft"),
    "draft": Sentence("Draft"),
    "activations": Sentence("Activations"),
    "graphs": Sentence("CUDA graphs"),
    "overhead": Sentence("Overhead"),
    "kv": Sentence("KV cache"),
    "free": Sentence("Free"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One part of the device's memory: `part` is a key of NAMES; bytes, None where nothing tells."""

    part: str
    estimate: int | None
    measured: int | None = None

    @property
    def name(self) -> Sentence:
        return NAMES[self.part]

    @property
    def more(self) -> int:
        """How much more it takes than estimated."""
        return 0 if None in (self.estimate, self.measured) else self.measured - self.estimate


def rows(found: Capacity, told: EngineMemory) -> list[Row]:
    """The parts of the whole device, one after the other; a part that neither has nor could have anything is left out.

    The engine prints one figure for weights and draft: once it is there they are one part.
    """
    made = [Row("others", found.others, told.others)]
    if told.weights and found.draft:
        made.append(Row("both", found.weights + found.draft, told.weights))
    else:
        made.append(Row("weights", found.weights, told.weights))
        made.append(Row("draft", found.draft))
    made.append(Row("activations", found.activations, told.activations))
    made.append(Row("graphs", found.graphs, told.graphs))
    made.append(Row("overhead", found.rest, told.overhead))
    made.append(Row("kv", found.kv_budget, told.kv_bytes))
    made = [
        each for each in made if each.estimate or each.measured or each.part not in ("draft", "activations", "graphs")
    ]
    return [*made, Row("free", _left(found, (each.estimate for each in made)), _left_really(found, told, made))]


def _left(found: Capacity, taken: Iterable[int | None]) -> int:
    return max(0, found.total - sum(each or 0 for each in taken))


def _left_really(found: Capacity, told: EngineMemory, made: list[Row]) -> int | None:
    """Where weights are not printed the overhead is all that the processes hold beside those that were estimated."""
    if None in (told.others, told.overhead, told.kv_bytes):
        return None
    return _left(found, (each.estimate if each.measured is None else each.measured for each in made))


def cache(told: EngineMemory) -> Sentence | None:
    """What the cache holds by the engine's own words."""
    if told.kv_tokens is None or told.concurrency is None:
        return None
    return Sentence(
        "By vLLM the KV cache holds {tokens} tokens: {concurrency} conversations of {context}.",
        {
            "tokens": figures.tokens(told.kv_tokens),
            "concurrency": f"{told.concurrency:.2f}",
            "context": figures.tokens(told.context),
        },
    )


def sentences(found: Capacity, told: EngineMemory) -> Iterator[Sentence]:
    """What the cache holds by the engine's own words; where that is not what was estimated, by how much and why."""
    if (alone := cache(told)) is None:
        return
    values = alone.values | {"estimate": figures.tokens(found.kv_tokens)}
    if found.kv_tokens is None:
        yield alone
    elif told.kv_tokens == found.kv_tokens:
        yield Sentence(
            "By vLLM the KV cache holds {tokens} tokens, as estimated: {concurrency} conversations of {context}.",
            values,
        )
    else:
        yield Sentence(
            "By vLLM the KV cache holds {tokens} tokens, not {estimate} as estimated: {concurrency} conversations of "
            "{context}.",
            values,
        )
        yield _reason(found, told)


def _reason(found: Capacity, told: EngineMemory) -> Sentence:
    """Which part made the cache larger or smaller."""
    if told.context != found.context:
        return Sentence("The difference: the estimate was for conversations of another length.")
    if taken_by_token(found, told):
        return Sentence("The difference: a token takes another size of the cache than all layers together keep.")
    lost = 0 if told.kv_bytes is None else found.kv_budget - told.kv_bytes
    within = told if told.set_aside is None else replace(told, graphs=told.set_aside)
    parts = [each for each in rows(found, within) if each.part not in ("others", "kv", "free")]
    if abs(lost - sum(each.more for each in parts)) > abs(lost) / 2:
        return Sentence("The difference: vLLM had another share of the memory than was free before.")
    cause = max(parts, key=lambda each: each.more if lost > 0 else -each.more)
    values = {"part": cause.name, "size": figures.bytes_of(abs(cause.more))}
    if cause.more > 0:
        return Sentence("The difference: {part} took {size} more than estimated.", values)
    return Sentence("The difference: {part} took {size} less than estimated.", values)
