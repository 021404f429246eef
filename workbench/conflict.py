"""Why a plan cannot run, or may surprise, and the ways out."""

from dataclasses import dataclass
from pathlib import Path

from workbench.recipe import Recipe
from workbench.words import Sentence


@dataclass(frozen=True, slots=True)
class Fix:
    """One way out of a conflict: the recipe that results from taking it, and the folder where that is another."""

    label: Sentence
    recipe: Recipe
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why the plan cannot run, or a warning; `modules` are the linears it is about."""

    code: str
    sentence: Sentence
    modules: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    hint: Sentence | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """Sentences in a row, put into words when shown."""

    parts: tuple[Sentence, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))
