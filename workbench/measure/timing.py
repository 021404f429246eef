"""When text arrived, and what may be said about speed from it."""

import re
from dataclasses import dataclass, field

# A word is a run without spaces; in Chinese and Japanese, which write none, each character counts as one.
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]+")

FASTEST_STEP_S = 0.0005  # chunks that come faster than any engine makes them had waited to be read


@dataclass(slots=True)
class TokenTimes:
    """Arrival times of one stream. Seconds on one clock; a chunk may carry several tokens, or none that show.

    `texts_s` holds the time of each chunk with text. Where the server counts as it goes, `counted` holds
    (time, tokens so far) at each growth.
    """

    started_s: float
    texts_s: list[float] = field(default_factory=list)
    answer_at_s: float | None = None
    counted: list[tuple[float, int]] = field(default_factory=list)

    def text(self, at_s: float, reasoning: bool) -> None:
        """A chunk with text of any kind arrived."""
        self.texts_s.append(at_s)
        if not reasoning and self.answer_at_s is None:
            self.answer_at_s = at_s

    def count(self, at_s: float, tokens: int) -> None:
        """The server says that `tokens` were made so far."""
        if tokens and (not self.counted or tokens > self.counted[-1][1]):
            self.counted.append((at_s, tokens))

    @property
    def ttft_s(self) -> float | None:
        """To the first text of any kind: a chunk that only names the role is no token."""
        return self.texts_s[0] - self.started_s if self.texts_s else None

    @property
    def answer_s(self) -> float | None:
        """To the first text of the answer proper, after any reasoning."""
        return None if self.answer_at_s is None else self.answer_at_s - self.started_s

    def tokens_per_s(self, tokens: int | None) -> float | None:
        """Speed over the tokens after the first chunk, whose time is the prefill's. None where it cannot be told.

        A server that counts as it goes tells how many tokens the first chunk held; otherwise it is taken to have
        held as many as the average chunk.
        """
        if tokens is None or len(self.texts_s) < 2:
            return None
        running = [(at_s, count) for at_s, count in self.counted if at_s >= self.texts_s[0]]
        if len(running) > 1:
            (first_s, first), (last_s, last) = running[0], running[-1]
        else:
            first_s, last_s = self.texts_s[0], self.texts_s[-1]
            first, last = tokens / len(self.texts_s), tokens
        chunks = sum(first_s < at_s <= last_s for at_s in self.texts_s)
        return (last - first) / (last_s - first_s) if last_s - first_s > chunks * FASTEST_STEP_S else None


@dataclass(frozen=True, slots=True)
class Difference:
    """Two texts share their first `words` words; then they part at character `at` of the one, `other_at` of the other.

    An offset is the text's length where that text ended first.
    """

    words: int
    at: int
    other_at: int


def first_difference(text: str, other: str) -> Difference | None:
    """Where two texts part, by words: spacing does not count. None when they hold the same words."""
    words = 0
    ours, theirs = _WORD.finditer(text), _WORD.finditer(other)
    while True:
        word, other_word = next(ours, None), next(theirs, None)
        if word is None and other_word is None:
            return None
        if word is None or other_word is None or word.group() != other_word.group():
            return Difference(
                words,
                word.start() if word else len(text),
                other_word.start() if other_word else len(other),
            )
        words += 1


def word_count(text: str) -> int:
    """Words as `first_difference` counts them."""
    return sum(1 for _ in _WORD.finditer(text))
