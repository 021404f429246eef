"""Layers that vLLM loads as one and that differ: it refuses them, or worse, takes the first one's scheme for all."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from workbench.conflict import Conflict, Fix, Listed
from workbench.matching import cover, place
from workbench.reach import EXPERTS, family
from workbench.recipe import KEEP, Recipe
from workbench.sizes import Planned
from workbench.words import Sentence

_WORDS = {
    "kept": Sentence("whether they are quantized"),
    "bits": Sentence("bits"),
    "group_size": Sentence("group size"),
    "symmetric": Sentence("symmetry"),
}


def differing(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    """One conflict for each kind of difference, equal blocks together."""
    families: dict[tuple, list[Planned]] = defaultdict(list)
    for entry in planned:
        if key := family(entry.linear):
            families[key].append(entry)
    alike: dict[tuple, list[list[Planned]]] = defaultdict(list)
    for (kind, *_), members in families.items():
        if different := _differences(members):
            if kind == "experts":
                key = frozenset((entry.linear.leaf, entry.choice) for entry in members)
            else:
                key = tuple((entry.linear.leaf, entry.choice) for entry in members)
            alike[kind, different, key].append(members)
    names = [entry.linear.name for entry in planned]
    for (kind, different, _), group in alike.items():
        yield _conflict(recipe, kind, different, group, names)


def _conflict(
    recipe: Recipe, kind: str, different: tuple[str, ...], group: list[list[Planned]], names: Sequence[str]
) -> Conflict:
    modules = tuple(entry.linear.name for members in group for entry in members)
    values = {
        "modules": ", ".join(entry.linear.name for entry in group[0]) if kind != "experts" else "",
        "layer": group[0][0].linear.name.partition(EXPERTS)[0],
        "more": len(group) - 1,
        "what": Listed(tuple(_WORDS[word] for word in different)),
    }
    if kind == "experts":
        sentence = Sentence(
            "The experts of {layer} are loaded as one and must agree, but differ in {what} (and {more} more "
            "{more:block|blocks}).",
            values,
        )
    elif len(group) == 1:
        sentence = Sentence("{modules} are loaded as one and must agree, but differ in {what}.", values)
    else:
        sentence = Sentence(
            "{modules} are loaded as one and must agree, but differ in {what}; so do those of {more} more "
            "{more:block|blocks}.",
            values,
        )
    patterns = cover(modules, names)
    leader = next(entry for entry in group[0] if not entry.choice.kept)
    return Conflict(
        "siblings_differ",
        sentence,
        modules,
        (
            Fix(
                Sentence("Treat all of them like {module}", {"module": leader.linear.leaf}),
                place(recipe, patterns, leader.choice, names),
            ),
            Fix(Sentence("Keep these layers in 16 bit"), place(recipe, patterns, KEEP, names)),
        ),
    )


def _differences(members: Sequence[Planned]) -> tuple[str, ...]:
    choices = {entry.choice for entry in members}
    if len(choices) == 1:
        return ()
    if len({choice.kept for choice in choices}) > 1:
        return ("kept",)
    if all(choice.kept for choice in choices):
        return ()
    return tuple(word for word in _WORDS if len({getattr(choice, word) for choice in choices}) > 1)
