"""Rules that get in each other's way, and rules for what is never quantized."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from workbench.catalog.model import Model
from workbench.conflict import Conflict, Fix
from workbench.matching import Match, is_name, matcher, without
from workbench.recipe import Recipe
from workbench.words import Sentence

HEAD = "lm_head"


def overlapping(recipe: Recipe, matches: Sequence[Match], names: Sequence[str]) -> Iterable[Conflict]:
    """Two patterns, or two full names, with different choices for one layer."""
    reaching: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for number, match in enumerate(matches):
        exact = is_name(match.rule.pattern)
        for name in match.modules:
            reaching[exact, name].append(number)
    shared: dict[tuple[int, int], list[str]] = defaultdict(list)
    for (_, name), numbers in reaching.items():
        if len({matches[number].rule.choice for number in numbers}) == 1:
            continue  # thousands of rules may say the same of one layer
        for earlier, later in combinations(numbers, 2):
            if matches[earlier].rule.choice != matches[later].rule.choice:
                shared[earlier, later].append(name)
    for (earlier, later), modules in shared.items():
        first, second = recipe.rules[earlier].pattern, recipe.rules[later].pattern
        values = {"first": first, "second": second, "count": len(modules), "module": modules[0]}
        if first == second:
            sentence = Sentence("Two rules for {first} differ.", values)
            labels = (Sentence("Use the later rule"), Sentence("Use the earlier rule"))
            ways = (_dropped(recipe, earlier), _dropped(recipe, later))
        else:
            sentence = Sentence(
                "The rules {first} and {second} differ, and both match {count} {count:layer|layers} such as {module}.",
                values,
            )
            labels = tuple(Sentence("Let {pattern} hold there", {"pattern": pattern}) for pattern in (second, first))
            ways = (without(recipe, earlier, modules, names), without(recipe, later, modules, names))
        fixes = tuple(Fix(label, way) for label, way in zip(labels, ways, strict=True))
        yield Conflict("rules_overlap", sentence, tuple(modules), fixes)


def never_quantized(model: Model, recipe: Recipe, matches: Sequence[Match]) -> Iterable[Conflict]:
    """Rules that ask for what stays in 16 bit: head, embeddings, norms, routers."""
    others = {tensor.name.rpartition(".")[0] for tensor in model.tensors} | {HEAD}
    others -= {linear.name for linear in model.linears}
    for number, match in enumerate(matches):
        pattern = match.rule.pattern
        if match.rule.choice.kept or match.modules:
            continue
        named = list(filter(matcher(pattern), others))
        if not named:
            continue
        if model.tied and HEAD in named:
            sentence = Sentence("{pattern} stays in 16 bit: the head shares its weight with the embeddings.",
                                {"pattern": pattern})  # fmt: skip
        else:
            sentence = Sentence("{pattern} stays in 16 bit: only the linear layers of the blocks are quantized.",
                                {"pattern": pattern})  # fmt: skip
        fix = Fix(Sentence("Leave the rule {pattern} out", {"pattern": pattern}), _dropped(recipe, number))
        yield Conflict("never_quantized", sentence, fixes=(fix,))


def _dropped(recipe: Recipe, number: int) -> Recipe:
    return replace(recipe, rules=recipe.rules[:number] + recipe.rules[number + 1 :])
