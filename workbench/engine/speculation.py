"""How an engine drafts tokens ahead, and what vLLM is told of it: the keys of its speculative config."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.option import check_closed, option

METHODS = ("ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa")
HEADS = ("eagle", "eagle3", "medusa", "mtp")  # read the target's own states
NEEDING = ("draft_model", "eagle", "eagle3", "medusa")  # a folder; the layers for MTP may lie in the target's own
SAMPLING = ("greedy", "probabilistic")
SAMPLED = ("draft_model", "eagle", "eagle3", "mtp")  # those whose draft has probabilities to sample from
FIXED = ("medusa",)  # each token has a layer of its own, and vLLM asserts that all are used
# Requests with these are answered with 400 while the engine drafts.
REFUSED_FIELDS = ("min_p", "logit_bias")
_MOST_SEQUENCES = 4096  # above what any engine runs at once

NAMES = {
    "ngram": "n-gram", "suffix": "suffix", "draft_model": "draft model", "eagle": "EAGLE", "eagle3": "EAGLE-3",
    "mtp": "MTP", "medusa": "Medusa", "dflash": "DFlash", "dspark": "DSpark", "mlp_speculator": "MLP speculator",
}  # fmt: skip

Steps = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted: from the text so far (ngram, suffix), by a small model, or by a head of the target.

    `tokens` are drafted a step; `steps` lowers that by the number of sequences that run at once: (4, 3), (16, 1) drafts
    3 for up to 4 sequences, 1 for up to 16 and none beyond. `draft` is the folder of the draft or head, None for MTP
    layers of the target itself. An n-gram looked up has `lookup_min` to `lookup_max` tokens. `sampling` is how a draft
    chooses; `mixed` lets a draft of another vocabulary draft the tokens that both have; `parallel` drafts all tokens
    in one pass, which a head must be trained for.
    """

    method: str = option("ngram", "Drafting", *METHODS)
    tokens: int = option(4, "Draft tokens a step")
    draft: Path | None = option(None, "Draft model")
    lookup_min: int = option(2, "Shortest n-gram")
    lookup_max: int = option(4, "Longest n-gram")
    steps: Steps = option((), "Draft tokens by load")
    sampling: str = option("greedy", "Draft sampling", *SAMPLING)
    mixed: bool = option(False, "Mixed vocabularies", True, False)
    parallel: bool = option(False, "Draft in one pass", True, False)

    def __post_init__(self) -> None:
        check_closed(self)
        if self.tokens < 1:
            raise WorkbenchError("{tokens} draft tokens a step make no sense.", "Choose 1 or more.", tokens=self.tokens)
        if self.draft is None and self.method == "draft_model":
            raise WorkbenchError(
                "The draft model is missing.", "Choose the folder of a small model of the same family."
            )
        if self.draft is None and self.method in NEEDING:
            raise WorkbenchError(
                "The head for {method} is missing.", "Choose the folder of a head that was trained for this model.",
                method=NAMES[self.method],
            )  # fmt: skip
        if not 1 <= self.lookup_min <= self.lookup_max:
            raise WorkbenchError(
                "An n-gram of {low} to {high} tokens is no range.",
                "Let the shortest be at least 1 and the longest no less.",
                low=self.lookup_min, high=self.lookup_max,
            )  # fmt: skip
        self._check_steps()
        if self.sampling != "greedy" and self.method not in SAMPLED:
            raise WorkbenchError(
                "{method} has nothing to sample from.", "Choose greedy draft sampling.", method=NAMES[self.method]
            )
        if self.mixed and self.method != "draft_model":
            raise WorkbenchError("Only a draft model can have another vocabulary.", "Switch mixed vocabularies off.")
        if self.mixed and self.sampling != "greedy":
            raise WorkbenchError(
                "Across vocabularies vLLM drafts greedily only.", "Choose greedy draft sampling, or the adapted copy."
            )

    def _check_steps(self) -> None:
        limits = [limit for limit, _ in self.steps]
        if not self.steps:
            return
        if self.method in FIXED:
            raise WorkbenchError(
                "{method} drafts the same number of tokens at any load.", "Leave the tokens by load empty.",
                method=NAMES[self.method],
            )  # fmt: skip
        rising = limits == sorted(set(limits)) and limits[0] >= 1
        if not rising or any(not 0 <= tokens <= self.tokens for _, tokens in self.steps):
            raise WorkbenchError(
                "{steps} does not say how many tokens to draft at which load.",
                "Write rising numbers of sequences, each with at most {most} tokens, such as 4:{most},16:1.",
                steps=written(self.steps), most=self.tokens,
            )  # fmt: skip


def config(chosen: Speculation) -> dict[str, Any]:
    """The value of vLLM's --speculative-config, without what is its default anyway."""
    told: dict[str, Any] = {"method": chosen.method, "num_speculative_tokens": chosen.tokens}
    if chosen.method == "ngram":
        told |= {"prompt_lookup_min": chosen.lookup_min, "prompt_lookup_max": chosen.lookup_max}
    if chosen.draft is not None and chosen.method not in ("ngram", "suffix"):
        told["model"] = str(chosen.draft)
    if chosen.steps:
        told["num_speculative_tokens_per_batch_size"] = _ranges(chosen.steps)
    if chosen.sampling != "greedy":
        told["draft_sample_method"] = chosen.sampling
    if chosen.mixed:
        told["use_heterogeneous_vocab"] = True
    if chosen.parallel:
        told["parallel_drafting"] = True
    return told


def _ranges(steps: Steps) -> list[list[int]]:
    """vLLM's inclusive ranges of sequences; it would carry the last number on, here nothing is drafted beyond it."""
    ranges, first = [], 1
    for limit, tokens in steps:
        ranges.append([first, limit, tokens])
        first = limit + 1
    return [*ranges, [first, max(first, _MOST_SEQUENCES), 0]]


def written(steps: Steps) -> str:
    """Such as 4:3,16:1, as it is typed."""
    return ",".join(f"{limit}:{tokens}" for limit, tokens in steps)


def read_steps(text: str) -> Steps:
    """What `written` wrote; a WorkbenchError for what is no such list."""
    try:
        return tuple(_pair(part.split(":")) for part in text.replace(" ", "").split(",") if part)
    except ValueError as error:
        raise WorkbenchError(
            "{text} does not say how many tokens to draft at which load.",
            "Write sequences:tokens, separated by commas, such as 4:4,16:1.", text=text,
        ) from error  # fmt: skip


def _pair(parts: Sequence[str]) -> tuple[int, int]:
    limit, tokens = parts
    return int(limit), int(tokens)
