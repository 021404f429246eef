"""Experts whose rows have one scale each, for which vLLM 0.32 has its Marlin kernel alone."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from workbench.conflict import Conflict, Fix
from workbench.matching import cover, place
from workbench.recipe import GROUP_SIZES, KEEP, WHOLE_ROW, Choice, Recipe
from workbench.sizes import Planned
from workbench.words import Sentence

WIDTH = 128  # Marlin takes experts of a block whose width is a multiple of this


def unfit(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    """Those that Marlin does not take: vLLM would stop when it builds the model."""
    entries = [entry for entry in planned if entry.linear.expert and not taken(entry.choice, _width(entry))]
    if not entries:
        return
    names = [entry.linear.name for entry in planned]
    modules = tuple(entry.linear.name for entry in entries)
    fixes = []
    fitting = [size for size in GROUP_SIZES if not any(entry.linear.in_features % size for entry in entries)]
    if fitting:
        grouped = recipe
        for choice in dict.fromkeys(entry.choice for entry in entries):
            alike = [entry.linear.name for entry in entries if entry.choice == choice]
            grouped = place(grouped, cover(alike, names), replace(choice, group_size=fitting[0]), names)
        fixes.append(Fix(Sentence("Use {size} for these layers", {"size": fitting[0]}), grouped))
    fixes.append(Fix(Sentence("Keep these layers in 16 bit"), place(recipe, cover(modules, names), KEEP, names)))
    yield Conflict(
        "expert_rows",
        Sentence(
            "{count} linear {count:layer|layers} of experts {count:has|have} one scale for each row: vLLM loads them "
            "so with 4 or 8 bits only, and where the block's width is a multiple of {width}.",
            {"count": len(entries), "width": WIDTH},
        ),
        modules,
        tuple(fixes),
    )


def taken(choice: Choice, width: int) -> bool:
    """Whether vLLM loads experts so, in a block of that width."""
    return choice.kept or choice.group_size != WHOLE_ROW or (choice.bits in (4, 8) and width % WIDTH == 0)


def _width(entry: Planned) -> int:
    return entry.linear.out_features if entry.linear.role == "down" else entry.linear.in_features
