"""What stands in the way of a plan, as sentences with ways out."""

import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from workbench import expert_rows, fused, overlaps, slices, unmatched
from workbench.catalog.model import Model
from workbench.conflict import Conflict, Fix
from workbench.matching import Match, cover, place
from workbench.recipe import GROUP_SIZES, KEEP, LAYERED, WHOLE_ROW, Choice, Recipe, with_group_size
from workbench.sizes import Planned
from workbench.words import Sentence

__all__ = ["KEEP", "Conflict", "Fix", "find"]

DTYPES = ("BF16", "F16", "F32")


def find(
    model: Model,
    recipe: Recipe,
    planned: Sequence[Planned],
    matches: Sequence[Match],
    output: Path | None,
    size: int,
) -> tuple[Conflict, ...]:
    """Everything that rules out running; `size` is what the result will take, in bytes."""
    unfit = [Conflict(note.code, note.sentence, hint=note.hint) for note in model.blocking("quantize")]
    if unfit:
        return tuple(unfit)
    names = [entry.linear.name for entry in planned]
    found = [
        *overlaps.overlapping(recipe, matches, names),
        *overlaps.never_quantized(model, recipe, matches),
        *unmatched.find(model, recipe, matches),
        *_dtypes(recipe, planned, model),
        *_groups(recipe, planned),
        *fused.differing(recipe, planned),
        *expert_rows.unfit(recipe, planned),
        *slices.unfit(model, recipe, planned),
        *_nothing(planned),
    ]
    if output is not None:
        found += _place(model, recipe, output, size)
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
            "Group size {size} does not divide the input size of {count} linear {count:layer|layers} ({widths}).",
            {"size": size, "count": len(entries), "widths": ", ".join(map(str, widths))},
        )
        modules = tuple(entry.linear.name for entry in entries)
        names = [entry.linear.name for entry in planned]
        fixes = []
        if fitting:
            values = {"size": fitting[0], "asked": size}
            mixed = _per_choice(recipe, entries, names, fitting[0])
            fixes.append(Fix(Sentence("Use {size} everywhere", values), with_group_size(recipe, fitting[0])))
            fixes.append(Fix(Sentence("Use {size} where needed, {asked} elsewhere", values), mixed))
        fixes.append(Fix(Sentence("Keep these layers in 16 bit"), place(recipe, cover(modules, names), KEEP, names)))
        listed = ", ".join(map(str, fitting))
        hint = Sentence("Sizes that fit: {sizes}.", {"sizes": listed}) if fitting else None
        yield Conflict("group_size", sentence, modules, tuple(fixes), hint)


def _per_choice(recipe: Recipe, entries: Sequence[Planned], names: Sequence[str], size: int) -> Recipe:
    """The recipe with another group size for these entries, each with the rest of its own choice."""
    alike: dict[Choice, list[str]] = defaultdict(list)
    for entry in entries:
        alike[entry.choice].append(entry.linear.name)
    for choice, modules in alike.items():
        recipe = place(recipe, cover(modules, names), replace(choice, group_size=size), names)
    return recipe


def _dtypes(recipe: Recipe, planned: Sequence[Planned], model: Model) -> Iterable[Conflict]:
    """Weights stored in a type that neither our arithmetic nor the engine takes as a plain weight."""
    stored = {tensor.name: tensor.dtype for tensor in model.tensors}
    offenders: dict[str, list[str]] = defaultdict(list)
    for entry in planned:
        dtype = stored.get(f"{entry.linear.name}.weight")
        if not entry.choice.kept and dtype not in DTYPES:
            offenders[str(dtype)].append(entry.linear.name)
    names = [entry.linear.name for entry in planned]
    for dtype, modules in offenders.items():
        yield Conflict(
            "dtype",
            Sentence(
                "{count} linear {count:layer|layers} such as {module} {count:is|are} stored as {dtype}; only "
                "{dtypes} can be quantized.",
                {"count": len(modules), "module": modules[0], "dtype": dtype, "dtypes": ", ".join(DTYPES)},
            ),
            tuple(modules),
            (Fix(Sentence("Keep these layers in 16 bit"), place(recipe, cover(modules, names), KEEP, names)),),
        )


def _nothing(planned: Sequence[Planned]) -> Iterable[Conflict]:
    if all(entry.choice.kept for entry in planned):
        yield Conflict(
            "nothing_quantized",
            Sentence("The recipe keeps every layer in 16 bit."),
            fixes=(Fix(Sentence("Use the preset {name}", {"name": LAYERED.name}), LAYERED),),
            hint=Sentence("Choose a method for attention or MLP."),
        )


def _place(model: Model, recipe: Recipe, output: Path, size: int) -> Iterable[Conflict]:
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
            fixes=(Fix(Sentence("Write to {name}", {"name": (free := _free(output)).name}), recipe, free),),
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


def _free(output: Path) -> Path:
    """A name beside it that is not taken."""
    return next(free for number in count(2) if not (free := output.with_name(f"{output.name}-{number}")).exists())
