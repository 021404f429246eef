"""How one engine shares its steps between the prompts that it reads and the answers that it writes, in words."""

from workbench import figures
from workbench.engine.profile import Profile
from workbench.words import Sentence


def explained(profile: Profile) -> list[Sentence]:
    """A sentence each on the tokens of a step, on long prompts and on the order, as this profile has them."""
    return [_step(profile), _long_prompts(profile), _order(profile)]


def _step(profile: Profile) -> Sentence:
    if profile.batched_tokens is None:
        return Sentence(
            "A step computes a token of each running answer, and prompts in parts up to a limit that the engine "
            "chooses: fewer tokens a step keep answers even, more bring first tokens sooner."
        )
    return Sentence(
        "A step computes at most {tokens} tokens: one of each running answer, and prompts in parts with the rest. "
        "Fewer keep answers even, more bring first tokens sooner.",
        {"tokens": figures.tokens(profile.batched_tokens)},
    )


def _long_prompts(profile: Profile) -> Sentence:
    if profile.long_prefill is None:
        return Sentence("A long prompt may take all that a step has for prompts; short ones behind it wait.")
    return Sentence(
        "A long prompt takes at most {tokens} tokens of a step, so that short ones pass it.",
        {"tokens": figures.tokens(profile.long_prefill)},
    )


def _order(profile: Profile) -> Sentence:
    if profile.scheduling == "priority":
        return Sentence("Requests that are expected to be short go first, by the priority that each carries.")
    return Sentence("Requests are taken in the order in which they came.")
