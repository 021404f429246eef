"""Rules that reach no layer: most often a name that is misspelled, or that is another model's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from workbench.catalog.model import Model
from workbench.conflict import Conflict, Fix
from workbench.matching import Match
from workbench.overlaps import HEAD
from workbench.recipe import Recipe, Rule
from workbench.words import Sentence

EACH = 3  # so many have a sentence of their own; a recipe of another model may have hundreds


def find(model: Model, recipe: Recipe, matches: Sequence[Match]) -> Iterable[Conflict]:
    """One conflict for each, with the pattern that was probably meant; one for all of them where they are many."""
    others = [tensor.name.rpartition(".")[0] for tensor in model.tensors]
    # What names the head, an embedding or a norm is kept anyway, or is a conflict of its own.
    lost = [
        match.rule
        for match in matches
        if not match.modules
        and match.rule.pattern != HEAD
        and not any(fnmatchcase(name, match.rule.pattern) for name in others)
    ]
    if len(lost) > EACH:
        yield Conflict(
            "pattern_unmatched",
            Sentence(
                "{count} patterns such as {pattern} match no layer of this model.",
                {"count": len(lost), "pattern": lost[0].pattern},
            ),
            fixes=(Fix(Sentence("Leave these rules out"), _without(recipe, lost)),),
        )
        return
    modules = [linear.name for linear in model.linears]
    for rule in lost:
        pattern = rule.pattern
        near = nearest(pattern, modules)
        fixes = [Fix(Sentence("Use {pattern}", {"pattern": name}), _renamed(recipe, pattern, name)) for name in near]
        fixes.append(Fix(Sentence("Leave the rule {pattern} out", {"pattern": pattern}), _without(recipe, [rule])))
        yield Conflict(
            "pattern_unmatched",
            Sentence("The pattern {pattern} matches no layer.", {"pattern": pattern}),
            fixes=tuple(fixes),
            hint=Sentence("Did you mean {pattern}?", {"pattern": near[0]}) if near else None,
        )


def nearest(pattern: str, modules: Sequence[str]) -> list[str]:
    """The pattern that was probably meant, if one comes near."""
    return get_close_matches(pattern, _candidates(modules), 1, 0.5)


def _without(recipe: Recipe, rules: Sequence[Rule]) -> Recipe:
    return replace(recipe, rules=tuple(rule for rule in recipe.rules if rule not in rules))


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
