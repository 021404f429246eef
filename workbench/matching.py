"""Which layers the rules of a recipe match, and which rule holds for each.

A rule that names a layer in full wins over patterns, and the later one among equals. Models have up to tens of
thousands of layers and an allocated recipe as many rules, so full names are looked up and not compared.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import lru_cache
from operator import methodcaller

from workbench.choice import Choice
from workbench.recipe import Recipe, Rule


@dataclass(frozen=True, slots=True)
class Match:
    """What one rule reaches: `modules` are the layers it matches, and it decides for `holds` of them."""

    rule: Rule
    modules: tuple[str, ...]
    holds: int


@dataclass(frozen=True, slots=True)
class Matches:
    """`of_rules` is in the order of the recipe; `chosen` gives a layer's own choice where a rule holds for it."""

    of_rules: tuple[Match, ...]
    chosen: dict[str, Choice]


def is_name(pattern: str) -> bool:
    """Whether it names one module in full."""
    return "*" not in pattern and "?" not in pattern and "[" not in pattern


@lru_cache(1 << 16)
def matcher(pattern: str) -> Callable[[str], object]:
    """Whether a module's name matches; like fnmatchcase, with short ways for the usual patterns."""
    rest = pattern.strip("*")
    if is_name(rest) and pattern == f"*{rest}":
        return methodcaller("endswith", rest)
    if is_name(rest) and pattern == f"{rest}*":
        return methodcaller("startswith", rest)
    return re.compile(translate(pattern)).match


def find(rules: Sequence[Rule], names: Sequence[str]) -> Matches:
    """Match every rule against the names of all layers."""
    found, deciding, exact = _reached(rules, names), dict[str, int](), dict[str, int]()
    for number, (rule, modules) in enumerate(zip(rules, found, strict=True)):
        if is_name(rule.pattern):
            exact |= dict.fromkeys(modules, number)
        else:
            deciding |= dict.fromkeys(modules, number)
    deciding |= exact  # full names win
    holds = Counter(deciding.values())
    return Matches(
        tuple(Match(rule, found[number], holds[number]) for number, rule in enumerate(rules)),
        {name: rules[number].choice for name, number in deciding.items()},
    )


def deciding(matches: Iterable[Match]) -> dict[str, str]:
    """The pattern that decides for each layer that any of the rules reaches."""
    wide, exact = dict[str, str](), dict[str, str]()
    for match in matches:
        (exact if is_name(match.rule.pattern) else wide).update(dict.fromkeys(match.modules, match.rule.pattern))
    return wide | exact


def _reached(rules: Sequence[Rule], names: Sequence[str]) -> list[tuple[str, ...]]:
    """What each rule's pattern matches."""
    known = set(names)
    return [
        tuple(filter(matcher(rule.pattern), names))
        if not is_name(rule.pattern)
        else (rule.pattern,) * (rule.pattern in known)
        for rule in rules
    ]


def cover(modules: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Few patterns that match these of all `names` and no others: `*.q_proj` where every such layer is among them."""
    chosen = set(modules)
    leaves: dict[str, list[str]] = defaultdict(list)
    for name in names:
        leaves[name.rpartition(".")[2]].append(name)
    patterns = []
    for leaf, alike in leaves.items():
        if chosen.issuperset(alike):
            patterns.append(f"*.{leaf}")
        else:
            patterns += [name for name in alike if name in chosen]
    return tuple(patterns)


def without(recipe: Recipe, number: int, modules: Iterable[str], names: Sequence[str]) -> Recipe:
    """The recipe whose rule of that number no longer reaches `modules`; the rule goes when nothing is left for it."""
    rule = recipe.rules[number]
    taken, matches = set(modules), matcher(rule.pattern)
    rest = cover([name for name in names if matches(name) and name not in taken], names)
    reduced = tuple(Rule(pattern, rule.choice) for pattern in rest)
    return replace(recipe, rules=recipe.rules[:number] + reduced + recipe.rules[number + 1 :])


def place(recipe: Recipe, patterns: Sequence[str], choice: Choice, names: Sequence[str]) -> Recipe:
    """The recipe with `choice` for all that `patterns` match, whatever earlier rules say of it.

    Full names are simply added, for they win over patterns. Earlier rules give up what new patterns match.
    """
    wide = [matcher(pattern) for pattern in patterns if not is_name(pattern)]
    again, rules = set(patterns), list[Rule]()
    taken = set().union(*(filter(matches, names) for matches in wide))
    for rule, modules in zip(recipe.rules, _reached(recipe.rules, names), strict=True):
        if rule.pattern in again or (modules and taken.issuperset(modules)):
            continue
        if taken.isdisjoint(modules):
            rules.append(rule)
            continue
        rest = cover([name for name in modules if name not in taken], names)
        rules += [Rule(pattern, rule.choice) for pattern in rest]
    return replace(recipe, rules=(*rules, *(Rule(pattern, choice) for pattern in patterns)))
