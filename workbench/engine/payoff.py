"""Whether drafting pays: before the start from what each token reads, afterwards from what was accepted.

A step of the target that verifies k drafted tokens yields 1 + (accepted of them) tokens. It costs one step of the
target, k steps of the draft, and what the verification of k more tokens adds. Leviathan et al. 2023 (arXiv 2211.17192,
theorem 3.8): with a share a accepted at every position the speed-up is (1 − a^(k+1)) / ((1 − a)(1 + k·c)), where c is
the cost of a drafted token in steps of the target. Writing one sequence, both read all their weights for each token,
so c is what the draft reads over what the target reads.
"""

from workbench import figures
from workbench.engine_events import EngineSample
from workbench.words import Sentence

HOPED = 0.8  # share accepted by a draft of the same family that fits well; more is rare
# Of a step, for the verification of what was drafted, however little: the least there is. Measured on an H200, a 7B
# shape's step in bfloat16 as one CUDA graph: 4.7 % more with 1 further token, 5.5 % with 4, 6.0 % with 8.
VERIFYING = 0.045
ENOUGH = 100  # drafts before anything is said


def expected(cost: float, tokens: int, accepted: float = HOPED) -> float:
    """The speed-up with `tokens` drafted a step at `cost` each, a share of `accepted` taken at every position."""
    yielded = tokens + 1 if accepted == 1 else (1 - accepted ** (tokens + 1)) / (1 - accepted)
    return yielded / (1 + tokens * cost)


def measured(sample: EngineSample | None, cost: float = 0.0) -> float | None:
    """The most that drafting can have gained since the engine's start; None before it has drafted enough.

    `cost` of a drafted token in steps of the target, 0 for n-grams.
    """
    if sample is None or not sample.drafts or sample.drafts < ENOUGH or not sample.draft_tokens:
        return None
    yielded = 1 + (sample.accepted_tokens or 0) / sample.drafts
    return yielded / (1 + VERIFYING + sample.draft_tokens / sample.drafts * cost)


def loss(sample: EngineSample | None, cost: float = 0.0) -> Sentence | None:
    """That drafting makes this engine slower, where its own counters leave no other possibility."""
    gained = measured(sample, cost)
    if gained is None or gained >= 1:
        return None
    drafted = sample.draft_tokens / sample.drafts
    values = {
        "share": figures.percent((sample.accepted_tokens or 0) / sample.draft_tokens, 1),
        "yield": figures.number(1 + (sample.accepted_tokens or 0) / sample.drafts),
        "cost": figures.number(1 + VERIFYING + drafted * cost),
    }
    return Sentence(
        "Speculation is not helping: {share} of the drafted tokens are accepted. A step yields {yield} tokens and "
        "takes at least {cost} times as long as one without.",
        values,
    )
