"""What the user chose for one engine."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.events import Failed
from workbench.words import say

METHODS = ("ngram", "draft_model")
DTYPES = ("auto", "bfloat16", "float16", "float32")


def choice(default: Any, label: str, *values: Any) -> Any:
    """A field with its label (a template) and, where the choice is closed, its values."""
    return field(default=default, metadata={"label": label, "values": values})


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted: from the text so far (ngram), or by a small model in the folder `draft`.

    `tokens` are drafted a step; the n-gram looked up has `lookup_min` to `lookup_max` tokens.
    """

    method: str = choice("ngram", "Drafting", *METHODS)
    tokens: int = choice(4, "Draft tokens a step")
    draft: Path | None = choice(None, "Draft model")  # noqa: RUF009
    lookup_min: int = choice(2, "Shortest n-gram")
    lookup_max: int = choice(4, "Longest n-gram")

    def __post_init__(self) -> None:
        _closed(self)
        if self.tokens < 1:
            raise WorkbenchError("{tokens} draft tokens a step make no sense.", "Choose 1 or more.", tokens=self.tokens)
        if self.method == "draft_model" and self.draft is None:
            raise WorkbenchError(
                "The draft model is missing.", "Choose the folder of a small model of the same family."
            )
        if not 1 <= self.lookup_min <= self.lookup_max:
            raise WorkbenchError(
                "An n-gram of {low} to {high} tokens is no range.",
                "Let the shortest be at least 1 and the longest no less.",
                low=self.lookup_min, high=self.lookup_max,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine. None leaves the choice to the engine; `port` 0 takes a free one.

    `context` in tokens; `memory_share` of the whole GPU, 0 to 1; `kv_gib` fixes the KV cache's size in GiB;
    `block_size` in tokens; `extra` are further arguments of the engine, each one element.
    """

    model: Path
    name: str = choice("", "Served name")
    dtype: str = choice("auto", "Computing type", *DTYPES)
    context: int | None = choice(None, "Context length")
    memory_share: float | None = choice(None, "Share of the GPU memory")
    kv_gib: float | None = choice(None, "KV cache (GiB)")
    max_sequences: int | None = choice(None, "Sequences at once")
    block_size: int | None = choice(None, "Tokens a block")
    speculation: Speculation | None = choice(None, "Speculation")  # noqa: RUF009
    port: int = choice(0, "Port")
    extra: tuple[str, ...] = choice((), "Further arguments")

    def __post_init__(self) -> None:
        _closed(self)
        for name in ("context", "kv_gib", "max_sequences", "block_size"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise WorkbenchError(
                    "{option} cannot be {value}.", "Choose more than 0, or leave it empty.",
                    option=say(self.__dataclass_fields__[name].metadata["label"]), value=value,
                )  # fmt: skip
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise WorkbenchError(
                "{value} is no share of the GPU memory.", "Choose a number between 0 and 1.", value=self.memory_share
            )
        if not 0 <= self.port <= 65535:
            raise WorkbenchError("{port} is no port.", "Choose 1024 to 65535, or 0 for a free one.", port=self.port)

    @property
    def served_name(self) -> str:
        """The name that requests use; the folder's when none was chosen."""
        return self.name or self.model.name


def shorter(profile: Profile, failed: Failed) -> Profile | None:
    """The same engine with the context that the refusal said would fit; None when it said none."""
    length = failed.values.get("max_length")
    return replace(profile, context=length) if length else None


def _closed(chosen: Profile | Speculation) -> None:
    for option in chosen.__dataclass_fields__.values():
        values = option.metadata.get("values")
        if values and (value := getattr(chosen, option.name)) not in values:
            raise WorkbenchError(
                "{option} cannot be {value}.", "Choose one of {values}.",
                option=say(option.metadata["label"]), value=value, values=", ".join(values),
            )  # fmt: skip
