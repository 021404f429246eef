"""Long prompts that arrive while short chats are answered: what that does to the chats, in one engine and apart."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import NamedTuple

from workbench import figures
from workbench.engine.apart import serve_separated
from workbench.engine.client import chat
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Profile
from workbench.engine.sampling import Sampling
from workbench.engine.separation import Separation
from workbench.engine.served import log_file, opened, served
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, ReplyFailed, ReplyText, Stage
from workbench.measure.series import median, percentile
from workbench.settings import Settings
from workbench.words import Sentence

SIDES = ("one", "apart")
WORDS = (
    "light",
    "keeper",
    "stairs",
    "evening",
    "lamp",
    "water",
    "stone",
    "window",
    "garden",
    "letter",
    "river",
    "bread",
)


@dataclass(frozen=True, slots=True)
class Mix:
    """`chats` at a time ask short questions for `chat_tokens`, one after the other, until the last of `prompts` long
    ones of about `prompt_words` words is answered; each of these comes `pause_s` after the one before was.
    """

    chats: int = 2
    chat_tokens: int = 32
    prompts: int = 6
    prompt_words: int = 400
    pause_s: float = 1.0

    @property
    def sentence(self) -> Sentence:
        return Sentence(
            "{chats} at once chat for up to {tokens} tokens an answer, while {prompts} prompts of {length} words come.",
            {"chats": self.chats, "tokens": self.chat_tokens, "prompts": self.prompts, "length": self.prompt_words},
        )


@dataclass(slots=True)
class Measured:
    """What the client saw: seconds to the first text of chats and of long prompts, and between two pieces of text of
    the chats; the tokens of all answers, the seconds of it all, and how many requests failed.
    """

    first_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)
    prompt_first_s: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    failed: int = 0

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds and self.tokens else None


class Row(NamedTuple):
    """One figure of both ways, as values and as people read them; `speedup` above 1 is better apart."""

    name: str
    label: Sentence
    one: float | None
    apart: float | None
    speedup: float | None
    texts: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same mix in one engine and apart."""

    mix: Mix
    one: Measured
    apart: Measured

    def rows(self) -> list[Row]:
        """Every figure that both have, the chats' first."""
        return [
            self._row("first_median_s", Sentence("Chats: to the first token, median"), median, "first_s"),
            self._row("first_p95_s", Sentence("Chats: to the first token, p95"), _p95, "first_s"),
            self._row("between_median_s", Sentence("Chats: between tokens, median"), median, "between_s"),
            self._row("between_p95_s", Sentence("Chats: between tokens, p95"), _p95, "between_s"),
            # A prompt that stops all chats for a moment is one gap in a hundred of each: seen here, and felt.
            self._row("between_longest_s", Sentence("Chats: between tokens, longest"), _longest, "between_s"),
            self._row("prompt_first_median_s", Sentence("Long prompts: to the first token, median"), median,
                      "prompt_first_s"),
            _row("tokens_per_s", Sentence("Tokens of all answers"), self.one.tokens_per_s, self.apart.tokens_per_s,
                 faster=True),
            Row("failed", Sentence("Requests that failed"), self.one.failed, self.apart.failed, None,
                (str(self.one.failed), str(self.apart.failed), figures.DASH)),
        ]  # fmt: skip

    @property
    def verdict(self) -> Sentence:
        """What was measured, without a promise."""
        row = next(row for row in self.rows() if row.name == "between_p95_s")
        return Sentence(
            "While long prompts came, 95 % of the tokens followed the one before within {one} in one engine and within "
            "{apart} apart.",
            {"one": row.texts[0], "apart": row.texts[1]},
        )

    def _row(self, name: str, label: Sentence, of: Callable, field_name: str) -> Row:
        return _row(name, label, of(getattr(self.one, field_name)), of(getattr(self.apart, field_name)))


def _p95(values: list[float]) -> float | None:
    return percentile(values, 95)


def _longest(values: list[float]) -> float | None:
    return max(values, default=None)


def _row(name: str, label: Sentence, one: float | None, apart: float | None, faster: bool = False) -> Row:
    speedup = None
    if one and apart:
        speedup = apart / one if faster else one / apart
    shown = [figures.number(value) + ("" if value is None else " tok/s" if faster else " s") for value in (one, apart)]
    return Row(name, label, one, apart, speedup, (*shown, figures.ratio(speedup)))


async def measure(endpoint: Endpoint, mix: Mix, on_event: Callable[[Event], None]) -> Measured:
    """Run the mix against a server that answers; a request that fails counts as failed and ends nothing."""
    found = Measured()
    on_event(Stage("Mixed load", mix.prompts))
    came = asyncio.Event()

    async def ask(text: str, tokens: int, first_s: list[float], between_s: list[float] | None) -> bool:
        times: list[float] = []
        began_s = time.monotonic()
        last = await chat(
            endpoint,
            [{"role": "user", "content": text}],
            Sampling(max_tokens=tokens, temperature=0.0),
            lambda event: times.append(event.at_s) if isinstance(event, ReplyText) else None,
        )
        if isinstance(last, ReplyFailed) or not times:
            found.failed += 1
            return False
        first_s.append(times[0] - began_s)
        found.tokens += last.tokens or 0
        if between_s is not None:
            between_s += [after - before for before, after in pairwise(times)]
        return True

    async def chats(number: int) -> None:
        for turn in count(number, mix.chats):
            text = f"Tell a story about {turn + 1} {WORDS[turn % len(WORDS)]}."
            if came.is_set() or not await ask(text, mix.chat_tokens, found.first_s, found.between_s):
                return

    async def prompts() -> None:
        for number in range(mix.prompts):
            await asyncio.sleep(mix.pause_s)
            words = (WORDS[(number * 7 + index * (number + 1)) % len(WORDS)] for index in range(mix.prompt_words))
            # The number stands first, so that no prompt begins like one before and is found in the cache.
            await ask(f"{number + 1}: {' '.join(words)}", 1, found.prompt_first_s, None)
            on_event(Advanced(number + 1))
        came.set()

    began_s = time.monotonic()
    await asyncio.gather(prompts(), *(chats(number) for number in range(mix.chats)))
    found.seconds = time.monotonic() - began_s
    return found


async def compare_separated(
    separation: Separation, mix: Mix, settings: Settings, on_event: Callable[[str, Event], None]
) -> Comparison:
    """The mix in one engine as the decode leg's, then apart; one after the other, so that neither slows the other."""
    profile = one_engine(separation)
    found = {}
    async with served(profile, settings, lambda event: on_event("one", event), "one") as endpoint:
        found["one"] = await measure(endpoint, mix, lambda event: on_event("one", event))

    def start(take: Callable[[Event], None]):
        return serve_separated(separation, settings, take, log_file("apart"))

    async with opened(start, lambda event: on_event("apart", event)) as endpoint:
        found["apart"] = await measure(endpoint, mix, lambda event: on_event("apart", event))
    return Comparison(mix, **found)


def one_engine(separation: Separation) -> Profile:
    """The profile to compare with; running engines have none."""
    if separation.profile is None:
        raise WorkbenchError(
            "Running engines cannot be compared with one engine here.", "Choose a model's folder to serve."
        )
    return replace(separation.profile, port=0)
