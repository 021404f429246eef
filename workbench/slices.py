"""Whether the packed layers can be cut for several GPUs (tensor parallel): q, k, v, gate and up along their outputs,
o and down along their inputs, as vLLM does it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.conflict import Conflict, Fix
from workbench.matching import cover, place
from workbench.recipe import GROUP_SIZES, KEEP, WHOLE_ROW, Recipe
from workbench.sizes import WORD, Planned
from workbench.words import Sentence

BY_INPUTS = ("o", "down")
BY_OUTPUTS = ("q", "k", "v", "qkv", "q_b", "kv_b", "gate", "up", "gate_up")


def width(linear: Linear, ranks: int) -> int:
    """The inputs of a layer that one of `ranks` GPUs multiplies."""
    return linear.in_features // ranks if linear.role in BY_INPUTS else linear.in_features


def unfit(model: Model, recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    """What cannot be split over `recipe.tensor_parallel` GPUs."""
    ranks = recipe.tensor_parallel
    if ranks == 1:
        return
    one = Fix(Sentence("Serve on one GPU"), replace(recipe, tensor_parallel=1))
    cannot = uneven(model, ranks)
    if cannot:
        fewer = tuple(
            Fix(Sentence("Split over {ranks} GPUs", {"ranks": less}), replace(recipe, tensor_parallel=less))
            for less in range(ranks - 1, 1, -1)
            if not uneven(model, less)
        )[:1]
        yield Conflict("ranks", cannot, fixes=(*fewer, one))
        return
    yield from _groups(recipe, planned, ranks, one)
    yield from _words(recipe, planned, ranks, one)


def uneven(model: Model, ranks: int) -> Sentence | None:
    """Why heads or widths cannot be split over `ranks` GPUs, in whatever form; None where they can."""
    values = {"ranks": ranks, "heads": model.heads, "kv_heads": model.kv_heads}
    if model.heads and model.heads % ranks:
        return Sentence("{heads} attention {heads:head|heads} cannot be split evenly over {ranks} GPUs.", values)
    # With fewer key/value heads than GPUs vLLM repeats them.
    if model.kv_heads and model.kv_heads % ranks and ranks % model.kv_heads:
        return Sentence("{kv_heads} key/value {kv_heads:head|heads} cannot be split evenly over {ranks} GPUs.", values)
    for linear in model.linears:
        cut = linear.in_features if linear.role in BY_INPUTS else linear.out_features
        split = linear.role in BY_INPUTS or linear.role in ("gate", "up", "gate_up")
        if split and cut % ranks:
            return Sentence(
                "The width {width} of {module} cannot be split evenly over {ranks} GPUs.",
                values | {"width": cut, "module": linear.name},
            )
    return None


def _groups(recipe: Recipe, planned: Sequence[Planned], ranks: int, one: Fix) -> Iterable[Conflict]:
    offenders: dict[int, list[Planned]] = defaultdict(list)
    for entry in planned:
        size = entry.choice.group_size
        whole = entry.choice.kept or size == WHOLE_ROW or entry.linear.in_features % size  # a conflict of its own
        if not whole and width(entry.linear, ranks) % size:
            offenders[size].append(entry)
    names = [entry.linear.name for entry in planned]
    for size, entries in offenders.items():
        widths = sorted({width(entry.linear, ranks) for entry in entries})
        fitting = [other for other in GROUP_SIZES if all(each % other == 0 for each in widths)]
        fixes = [one]
        if fitting:
            mixed = recipe
            for choice in dict.fromkeys(entry.choice for entry in entries):
                alike = [entry.linear.name for entry in entries if entry.choice == choice]
                mixed = place(mixed, cover(alike, names), replace(choice, group_size=fitting[0]), names)
            fixes.insert(0, Fix(Sentence("Use {size} for these layers", {"size": fitting[0]}), mixed))
        else:
            modules = cover([entry.linear.name for entry in entries], names)
            fixes.insert(0, Fix(Sentence("Keep these layers in 16 bit"), place(recipe, modules, KEEP, names)))
        values = {"size": size, "ranks": ranks, "count": len(entries), "widths": ", ".join(map(str, widths))}
        yield Conflict(
            "slice_group",
            Sentence(
                "Split over {ranks} GPUs, {count} linear {count:layer has|layers have} {widths} inputs each, "
                "which group size {size} does not divide.",
                values,
            ),
            tuple(entry.linear.name for entry in entries),
            tuple(fixes),
        )


def _words(recipe: Recipe, planned: Sequence[Planned], ranks: int, one: Fix) -> Iterable[Conflict]:
    """Packed words hold several inputs, and those of zero points several outputs: a cut must not fall inside one."""
    cut = []
    for entry in planned:
        choice, linear = entry.choice, entry.linear
        if choice.kept:
            continue
        inside = linear.role in BY_INPUTS and linear.in_features // ranks * choice.bits % WORD
        zeros = linear.role in BY_OUTPUTS and not choice.symmetric and linear.out_features // ranks * choice.bits % WORD
        if inside or zeros:
            cut.append(entry)
    if cut:
        names = [entry.linear.name for entry in planned]
        modules = tuple(entry.linear.name for entry in cut)
        kept = place(recipe, cover(modules, names), KEEP, names)
        yield Conflict(
            "slice_word",
            Sentence(
                "Split over {ranks} GPUs, the packed words of {count} linear {count:layer|layers} would be cut apart.",
                {"ranks": ranks, "count": len(cut)},
            ),
            modules,
            (Fix(Sentence("Keep these layers in 16 bit"), kept), one),
        )
