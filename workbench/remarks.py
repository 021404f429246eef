"""What may surprise in a plan without ruling it out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from workbench.catalog.model import Model
from workbench.conflicts import Conflict, Fix
from workbench.recipe import Recipe
from workbench.sizes import Planned
from workbench.words import Sentence

FEWEST_TOKENS = 16_384  # below this GPTQ was measured worse than plain rounding on the starter model


def warn(model: Model, recipe: Recipe, planned: Sequence[Planned]) -> tuple[Conflict, ...]:
    """What may surprise, without ruling anything out."""
    return (*_unmatched(model, recipe), *_few_tokens(recipe, planned))


def _unmatched(model: Model, recipe: Recipe) -> Iterable[Conflict]:
    modules = [linear.name for linear in model.linears]
    others = [tensor.name.rpartition(".")[0] for tensor in model.tensors]
    for rule in recipe.rules:
        if any(fnmatchcase(name, rule.pattern) for name in modules):
            continue
        if any(fnmatchcase(name, rule.pattern) for name in others) or rule.pattern == "lm_head":
            if not rule.choice.kept:
                yield Conflict(
                    "never_quantized",
                    Sentence("{pattern} stays in 16 bit: only the linear layers of the blocks are quantized.",
                             {"pattern": rule.pattern}),
                )  # fmt: skip
            continue
        near = get_close_matches(rule.pattern, _candidates(modules), 1, 0.5)
        yield Conflict(
            "pattern_unmatched",
            Sentence("The pattern {pattern} matches no layer.", {"pattern": rule.pattern}),
            fixes=tuple(Fix(Sentence("Use {pattern}", {"pattern": name}), _renamed(recipe, rule.pattern, name))
                        for name in near),
            hint=Sentence("Did you mean {pattern}?", {"pattern": near[0]}) if near else None,
        )  # fmt: skip


def _renamed(recipe: Recipe, old: str, new: str) -> Recipe:
    rules = tuple(replace(rule, pattern=new) if rule.pattern == old else rule for rule in recipe.rules)
    return replace(recipe, rules=rules)


def _candidates(modules: Sequence[str]) -> list[str]:
    """Patterns that somebody may have meant: whole names, beginnings and ends of them."""
    found: dict[str, None] = {}
    for name in modules[:2000]:
        parts = name.split(".")
        found |= dict.fromkeys((name, *(".".join(parts[:end]) + ".*" for end in range(1, len(parts)))))
        found |= dict.fromkeys("*." + ".".join(parts[start:]) for start in range(1, len(parts)))
    return list(found)


def _few_tokens(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    tokens = recipe.samples * recipe.length
    if tokens < FEWEST_TOKENS and any(entry.choice.method not in ("rtn", "keep") for entry in planned):
        yield Conflict(
            "few_tokens",
            Sentence(
                "{tokens} calibration tokens are few; below {fewest} GPTQ can be worse than plain rounding.",
                {"tokens": tokens, "fewest": FEWEST_TOKENS},
            ),
            hint=Sentence("Take more or longer samples."),
        )
