"""What stands in the way of a plan, as sentences with ways out."""

import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.catalog.linears import FUSED
from workbench.catalog.model import Model
from workbench.recipe import GROUP_SIZES, WHOLE_ROW, Choice, Recipe, with_group_size, with_rules
from workbench.sizes import Planned
from workbench.words import Sentence

KEEP = Choice(method="keep")


@dataclass(frozen=True, slots=True)
class Fix:
    """One way out of a conflict: the recipe that results from taking it."""

    label: Sentence
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why the plan cannot run, or a warning; `modules` are the linears it is about."""

    code: str
    sentence: Sentence
    modules: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    hint: Sentence | None = None


def find(
    model: Model, recipe: Recipe, planned: Sequence[Planned], output: Path | None, size: int
) -> tuple[Conflict, ...]:
    """Everything that rules out running; `size` is what the result will take, in bytes."""
    unfit = [Conflict(note.code, note.sentence, hint=note.hint) for note in model.blocking("quantize")]
    if unfit:
        return tuple(unfit)
    found = [*_groups(recipe, planned), *_siblings(recipe, planned), *_nothing(planned)]
    if output is not None:
        found += _place(model, output, size)
    return tuple(found)


def _groups(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    """Group sizes that do not divide the input size: one conflict for each size asked for."""
    offenders: dict[int, list[Planned]] = defaultdict(list)
    for entry in planned:
        size = entry.choice.group_size
        if not entry.choice.kept and size != WHOLE_ROW and entry.linear.in_features % size:
            offenders[size].append(entry)
    for size, entries in offenders.items():
        widths = sorted({entry.linear.in_features for entry in entries})
        fitting = [other for other in GROUP_SIZES if all(width % other == 0 for width in widths)]
        sentence = Sentence(
            "Group size {size} does not divide the input size of {count} linear layers ({widths}).",
            {"size": size, "count": len(entries), "widths": ", ".join(map(str, widths))},
        )
        modules = tuple(entry.linear.name for entry in entries)
        patterns = _patterns(modules, planned)
        fixes = []
        if fitting:
            values = {"size": fitting[0], "asked": size}
            mixed = _per_choice(recipe, entries, planned, fitting[0])
            fixes.append(Fix(Sentence("Use {size} everywhere", values), with_group_size(recipe, fitting[0])))
            fixes.append(Fix(Sentence("Use {size} where needed, {asked} elsewhere", values), mixed))
        fixes.append(Fix(Sentence("Keep these layers in 16 bit"), with_rules(recipe, patterns, KEEP)))
        listed = ", ".join(map(str, fitting))
        hint = Sentence("Sizes that fit: {sizes}.", {"sizes": listed}) if fitting else None
        yield Conflict("group_size", sentence, modules, tuple(fixes), hint)


def _per_choice(recipe: Recipe, entries: Sequence[Planned], planned: Sequence[Planned], size: int) -> Recipe:
    """The recipe with another group size for these entries, each with the rest of its own choice."""
    alike: dict[Choice, list[str]] = defaultdict(list)
    for entry in entries:
        alike[entry.choice].append(entry.linear.name)
    for choice, modules in alike.items():
        recipe = with_rules(recipe, _patterns(modules, planned), replace(choice, group_size=size))
    return recipe


def _siblings(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    """Layers that vLLM loads as one and that differ: it refuses them, or worse, takes the first one's scheme."""
    families: dict[tuple, list[Planned]] = defaultdict(list)
    for entry in planned:
        for number, roles in enumerate(FUSED):
            if entry.linear.role in roles:
                families[entry.linear.parent, number].append(entry)
    alike: dict[tuple, list[list[Planned]]] = defaultdict(list)
    for family in families.values():
        if different := _differences(family):
            leaves = tuple(entry.linear.leaf for entry in family)
            alike[leaves, different, tuple(entry.choice for entry in family)].append(family)
    for (leaves, different, _), group in alike.items():
        modules = tuple(entry.linear.name for family in group for entry in family)
        values = {
            "modules": ", ".join(modules[: len(leaves)]),
            "more": len(group) - 1,
            "what": _Listed(tuple(_WORDS[word] for word in different)),
        }
        if len(group) == 1:
            sentence = Sentence("{modules} are loaded as one and must agree, but differ in {what}.", values)
        else:
            sentence = Sentence(
                "{modules} are loaded as one and must agree, but differ in {what}; so do those of {more} more blocks.",
                values,
            )
        patterns = _patterns(modules, planned)
        leader = next(entry for entry in group[0] if not entry.choice.kept)
        yield Conflict(
            "siblings_differ",
            sentence,
            modules,
            (
                Fix(
                    Sentence("Treat all of them like {module}", {"module": leader.linear.leaf}),
                    with_rules(recipe, patterns, leader.choice),
                ),
                Fix(Sentence("Keep these layers in 16 bit"), with_rules(recipe, patterns, KEEP)),
            ),
        )


@dataclass(frozen=True)
class _Listed:
    """Sentences in a row, put into words when shown."""

    parts: tuple[Sentence, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))


_WORDS = {
    "kept": Sentence("whether they are quantized"),
    "bits": Sentence("bits"),
    "group_size": Sentence("group size"),
    "symmetric": Sentence("symmetry"),
}


def _differences(family: Sequence[Planned]) -> tuple[str, ...]:
    choices = [entry.choice for entry in family]
    if len({choice.kept for choice in choices}) > 1:
        return ("kept",)
    if choices[0].kept:
        return ()
    return tuple(word for word in _WORDS if len({getattr(choice, word) for choice in choices}) > 1)


def _nothing(planned: Sequence[Planned]) -> Iterable[Conflict]:
    if all(entry.choice.kept for entry in planned):
        yield Conflict(
            "nothing_quantized",
            Sentence("The recipe keeps every layer in 16 bit."),
            hint=Sentence("Choose a method for attention or MLP."),
        )


def _place(model: Model, output: Path, size: int) -> Iterable[Conflict]:
    """Whether the result can be written where it should go."""
    output, source = output.absolute(), model.folder.absolute()
    if output == source or source in output.parents or output in source.parents:
        yield Conflict(
            "output_is_source",
            Sentence("The result would be written into the original's own folder {path}.", {"path": str(output)}),
            hint=Sentence("Choose a folder beside it."),
        )
        return
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        yield Conflict(
            "output_exists",
            Sentence("{path} is there already.", {"path": str(output)}),
            hint=Sentence("Choose another folder, or remove this one."),
        )
    parent = next(folder for folder in output.parents if folder.is_dir())
    free = shutil.disk_usage(parent).free
    if free < size:
        yield Conflict(
            "no_space",
            Sentence(
                "The result needs {needed} MB and {path} has {free} MB free.",
                {"needed": -(-size // 10**6), "free": free // 10**6, "path": str(parent)},
            ),
            hint=Sentence("Free some space or choose a folder on another disk."),
        )


def _patterns(modules: Sequence[str], planned: Sequence[Planned]) -> tuple[str, ...]:
    """Few patterns for these modules: `*.q_proj` where every such layer is among them, else whole names."""
    chosen = set(modules)
    leaves: dict[str, list[str]] = defaultdict(list)
    for entry in planned:
        leaves[entry.linear.leaf].append(entry.linear.name)
    patterns = []
    for leaf, names in leaves.items():
        if chosen.issuperset(names):
            patterns.append(f"*.{leaf}")
        else:
            patterns += [name for name in names if name in chosen]
    return tuple(patterns)
