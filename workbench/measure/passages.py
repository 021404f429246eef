"""Prompts of a wanted length that no cache of prefixes can answer."""

import secrets
from dataclasses import dataclass, field
from functools import cache

from workbench import paths
from workbench.words import Sentence

WORDS_PER_TOKEN = 0.75  # of English, until a server has told how it counts
HOW = Sentence(
    "Each prompt is a passage of Lathe's held text behind a number that is new in every run, so that no cache of "
    "prefixes holds it; its length follows what the server counted for the warm-up."
)


@dataclass(slots=True)
class Passages:
    """Prompts of about `tokens` tokens each, one passage of the text after the other.

    The number in front is new in every run: a server that still holds an earlier run's prompts has none of these.
    """

    tokens: int
    words: int = 0
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    _given: int = 0

    def __post_init__(self) -> None:
        self.words = self.words or max(1, round(self.tokens * WORDS_PER_TOKEN))

    def __next__(self) -> str:
        text, number = _text(), self._given
        self._given += 1
        passage = (text[(number * self.words + at) % len(text)] for at in range(self.words))
        return f"{number} {self.run}: {' '.join(passage)}"

    def fit(self, counted: int | None) -> None:
        """Set the length by the tokens that the server counted for a prompt of the present one; None leaves it."""
        if counted:
            self.words = max(1, round(self.words * self.tokens / counted))


@cache
def _text() -> tuple[str, ...]:
    """The words of the English prose that measuring uses and no calibration has seen."""
    files = (paths.RESOURCES / "held" / name for name in ("essays.txt", "stories.txt"))
    return tuple(" ".join(file.read_text(encoding="utf-8").replace("<|document|>", "") for file in files).split())
