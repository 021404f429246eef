"""A closed-loop load: so many requests at once, each followed by the next, at one level after the other.

All seconds are of the client's monotonic clock; tokens are what the server counted, and None where it does not tell.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

from workbench import figures
from workbench.engine import remote
from workbench.engine.client import chat
from workbench.engine.endpoint import Endpoint
from workbench.engine.sampling import Sampling
from workbench.engine_events import EngineConnected
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Note, ReplyDone, ReplyFailed, Stage
from workbench.measure.passages import Passages
from workbench.measure.series import median, percentile
from workbench.words import Sentence

GROWTH = 1.1
"""What a level's tokens/s must be of those of the one before to count as more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The levels are how many requests run `at` once; each sends `requests`, but at least twice as many as at once."""

    at: Sequence[int] = (1, 2, 4, 8)
    requests: int = 16
    prompt_tokens: int = 256
    answer_tokens: int = 64

    def __post_init__(self) -> None:
        numbers = (*self.at, self.requests, self.prompt_tokens, self.answer_tokens)
        if not self.at or min(numbers) < 1:
            raise WorkbenchError("A load test needs numbers from 1 up.", "Write the levels as 1,2,4,8.")
        object.__setattr__(self, "at", tuple(sorted(set(self.at))))

    def requests_at(self, at: int) -> int:
        return max(self.requests, 2 * at)


@dataclass(slots=True)
class Level:
    """What came back of `requests` with `at` at once; `seconds` from the first that was sent to the last end.

    `seconds` is None while it runs and where it was broken off: nothing is said about rates then.
    """

    at: int
    requests: int
    sent: int = 0
    done: list[ReplyDone] = field(default_factory=list)
    failed: int = 0
    reason: Sentence | None = None
    seconds: float | None = None

    def fail(self, reason: Sentence, requests: int = 1) -> None:
        self.failed += requests
        self.reason = self.reason or reason

    def first_s(self, percent: float) -> float | None:
        """To the first text of an answer."""
        return percentile((done.ttft_s for done in self.done), percent)

    def token_s(self, percent: float) -> float | None:
        """From one token to the next: the mean of each answer after its first text, then over the answers."""
        return percentile(map(between_s, self.done), percent)

    @property
    def prompt_tokens(self) -> float | None:
        return median(done.prompt_tokens for done in self.done)

    @property
    def answer_tokens(self) -> float | None:
        return median(done.tokens for done in self.done)

    @property
    def tokens_per_s(self) -> float | None:
        counts = [done.tokens for done in self.done]
        return None if not counts or None in counts else self._rate(sum(counts))

    @property
    def requests_per_s(self) -> float | None:
        """Of the answers that came whole."""
        return self._rate(len(self.done)) if self.done else None

    def _rate(self, count: int) -> float | None:
        return count / self.seconds if self.seconds else None


def between_s(done: ReplyDone) -> float | None:
    """Mean seconds a token after the first: (end - first text) / (tokens - 1). None where no speed could be told."""
    if None in (done.ttft_s, done.tokens, done.tokens_per_s) or done.tokens < 2:
        return None
    return (done.total_s - done.ttft_s) / (done.tokens - 1)


@dataclass(slots=True)
class Load:
    """The server as it named itself, and its levels as far as they went; `lost` says what broke them off."""

    plan: Plan
    server: EngineConnected | None = None
    warmup: ReplyDone | None = None
    levels: list[Level] = field(default_factory=list)
    lost: WorkbenchError | None = None

    @property
    def knee(self) -> Level | None:
        """The last level whose tokens/s are at least 10 % above those of the one before; else the first.

        None where fewer than two levels have them.
        """
        known = [level for level in self.levels if level.tokens_per_s]
        if len(known) < 2:
            return None
        grown = [level for before, level in pairwise(known) if level.tokens_per_s / before.tokens_per_s >= GROWTH]
        return grown[-1] if grown else known[0]

    @property
    def verdict(self) -> Sentence | None:
        """Where the knee is, by which rule, without a promise."""
        if (knee := self.knee) is None:
            return None
        known = [level for level in self.levels if level.tokens_per_s]
        if knee is known[0]:
            return Sentence(
                "The knee is at {at} at once, the first level: the tokens/s of no other grew by 10 % or more over the "
                "one before.",
                {"at": knee.at},
            )
        if knee is known[-1]:
            return Sentence(
                "At {at} at once the tokens/s still grew by 10 % or more over the level before: the knee is not "
                "reached.",
                {"at": knee.at},
            )
        return Sentence(
            "The knee is at {at} at once: the last level whose tokens/s grew by 10 % or more over the one before.",
            {"at": knee.at},
        )


async def measure(endpoint: Endpoint, load: Load, on_event: Callable[[Event], None]) -> None:
    """Run the plan of `load` against a server that answers and fill it in as it goes.

    A request that fails is counted and ends nothing. A server that is lost ends it: `load.lost` says how, what was
    measured stays. Raises WorkbenchError where no server answers or the warm-up fails. Cancelling leaves what is there.
    """
    load.server = await remote.probe(endpoint)
    there = remote.endpoint_of(load.server)
    working = asyncio.ensure_future(_work(there, load, on_event))
    attending = asyncio.ensure_future(remote.until_lost(there))
    try:
        await asyncio.wait({working, attending}, return_when=asyncio.FIRST_COMPLETED)
        await (working if working.done() else attending)
    except WorkbenchError as error:
        if load.warmup is None:
            raise
        load.lost = error
    finally:
        working.cancel()
        attending.cancel()
        await asyncio.gather(working, attending, return_exceptions=True)
    if load.lost and load.levels and (level := load.levels[-1]).seconds is None:
        level.fail(Sentence(load.lost.message, load.lost.values), level.sent - len(level.done) - level.failed)


async def _work(endpoint: Endpoint, load: Load, on_event: Callable[[Event], None]) -> None:
    """The warm-up, then every level."""
    plan, passages, answered = load.plan, Passages(load.plan.prompt_tokens), 0
    on_event(Stage("Load test", sum(map(plan.requests_at, plan.at))))
    # Each request has a connection of its own, as other programs' have; the client is shared.
    async with endpoint.open(keep=False) as http:
        warmup = await _ask(endpoint, next(passages), plan.answer_tokens, http)
        if isinstance(warmup, ReplyFailed):
            raise WorkbenchError(warmup.message, warmup.hint, **warmup.values)
        load.warmup = warmup
        passages.fit(warmup.prompt_tokens)

        async def one_after_the_other(level: Level) -> None:
            nonlocal answered
            while level.sent < level.requests:
                level.sent += 1
                last = await _ask(endpoint, next(passages), plan.answer_tokens, http)
                if isinstance(last, ReplyFailed):
                    level.fail(Sentence(last.message, last.values))
                    await remote.probe(endpoint)  # nobody there: all others would fail as well
                else:
                    level.done.append(last)
                answered += 1
                on_event(Advanced(answered))

        for at in plan.at:
            level = Level(at, plan.requests_at(at))
            load.levels.append(level)
            began_s = time.monotonic()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(at):
                        group.create_task(one_after_the_other(level))
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
            level.seconds = time.monotonic() - began_s
            on_event(_told(level))


async def _ask(endpoint: Endpoint, prompt: str, tokens: int, http: httpx.AsyncClient) -> ReplyDone | ReplyFailed:
    sampling = Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    return await chat(endpoint, [{"role": "user", "content": prompt}], sampling, lambda event: None, http=http)


def _told(level: Level) -> Note:
    values = {
        "at": level.at,
        "speed": figures.number(level.tokens_per_s),
        "first": figures.brief(level.first_s(50)),
        "failed": level.failed,
    }
    return Note("{at} at once: {speed} tok/s, {first} to the first token, {failed} failed", values)
