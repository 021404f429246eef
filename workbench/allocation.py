"""Bits for every layer under a target: the least predicted damage for so many bits on average, or for so many bytes."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench import plan as plans
from workbench import reach, sizes
from workbench.budget import allocate
from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.plan import Plan
from workbench.quant_events import SensitivityMeasured
from workbench.recipe import KEEP, WHOLE_ROW, Choice, Recipe, with_rules
from workbench.sizes import Planned
from workbench.slices import width

SERVED = (4, 8, 16)  # bits that vLLM serves on every device; 16 keeps the layer as it is
LOW = (2, 3)  # with one package's kernels on NVIDIA GPUs, and through Lathe's plugin on CPUs


@dataclass(frozen=True, slots=True)
class Offer:
    """What one choice costs a set of layers that must be alike: stored bytes, predicted KL in nats per token."""

    choice: Choice
    bytes: int
    damage: float


@dataclass(frozen=True, slots=True)
class Part:
    """Layers that vLLM loads as one, and what they may become. `base` is the recipe's own choice: among the offers
    where its groups fit."""

    block: int
    names: tuple[str, ...]
    offers: tuple[Offer, ...]
    base: Offer


@dataclass(frozen=True, slots=True)
class Target:
    """At most `bits` per weight on average, or at most `size` bytes in all; `low` allows widths beyond SERVED."""

    bits: float | None = None
    size: int | None = None
    low: bool = False

    def __post_init__(self) -> None:
        if self.bits is not None and not 0 <= self.bits < math.inf:
            raise WorkbenchError("Bits on average cannot be {value}.", "Choose a number such as 4.5.", value=self.bits)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A recipe with a rule for every layer that leaves the base recipe, and what it comes to.

    `base` is the recipe it was made of. `bits` is the average over all linear layers, kept ones with their 16;
    `damage` and `base_damage` are the sums of predicted KL by each layer's own method, to compare mixes and no
    forecast of the result. `unmeasured` layers have no sensitivity and keep the recipe's choice.
    """

    recipe: Recipe
    base: Recipe
    plan: Plan
    bits: float
    damage: float
    base_bits: float
    base_damage: float
    unmeasured: tuple[str, ...]


def counts(plan: Plan) -> dict[int, int]:
    """How many linear layers have each width, by rising bits; kept ones have 16."""
    return dict(sorted(Counter(bits_of(entry.choice) for entry in plan.linears).items()))


def bits_of(choice: Choice) -> int:
    """The bits of a weight; 16 where the layer stays as it is."""
    return 16 if choice.kept else choice.bits


def propose(model: Model, recipe: Recipe, measured: Iterable[SensitivityMeasured], target: Target) -> Proposal:
    """The mix of least predicted damage under the target. Raises WorkbenchError, with the nearest, if there is none."""
    widths = (*LOW, *SERVED) if target.low else SERVED
    if target.size is not None:
        return for_size(model, recipe, measured, target.size, widths)
    assert target.bits is not None, target
    return for_bits(model, recipe, measured, target.bits, widths)


def for_bits(
    model: Model,
    recipe: Recipe,
    measured: Iterable[SensitivityMeasured],
    bits: float,
    widths: Sequence[int] = SERVED,
) -> Proposal:
    """The mix whose linear layers take at most `bits` per weight on average, scales and zero points included."""
    base, parts, unmeasured = _prepared(model, recipe, measured, widths)
    weights = sum(linear.weights for linear in model.linears)
    least = 8 * sum(min(offer.bytes for offer in part.offers) for part in parts) / max(1, weights)
    room = int(bits * weights / 8 + 1e-6)  # the recipe's own bits are room for the recipe
    parts = _no_less(parts, room)
    chosen = allocate([[(offer.bytes, offer.damage) for offer in part.offers] for part in parts], room)
    if chosen is None:
        raise WorkbenchError(
            "{bits} bits on average cannot be reached: the smallest mix takes {least}.",
            "Choose more bits, larger groups, or other layers to keep." if set(widths) & set(LOW)
            else "Choose more bits or larger groups, keep fewer layers, or allow 2 and 3 bits.",
            bits=bits, least=f"{least + 0.005:.2f}",
        )  # fmt: skip
    return _proposal(replace(recipe, name=f"{recipe.name or 'custom'}-{bits:g}bit"), base, parts, chosen, unmeasured)


def for_size(
    model: Model,
    recipe: Recipe,
    measured: Iterable[SensitivityMeasured],
    size: int,
    widths: Sequence[int] = SERVED,
) -> Proposal:
    """The mix whose checkpoint takes at most `size` bytes."""
    base, parts, unmeasured = _prepared(model, recipe, measured, widths)
    room = size - base.predicted_bytes + sum(entry.bytes for entry in base.linears)
    name = f"{recipe.name or 'custom'}-{size / 1e9:.3g}GB"
    parts = _no_less(parts, room)
    while chosen := allocate([[(offer.bytes, offer.damage) for offer in part.offers] for part in parts], room):
        made = _proposal(replace(recipe, name=name), base, parts, chosen, unmeasured)
        if made.plan.predicted_bytes <= size:
            return made
        room -= made.plan.predicted_bytes - size  # the header grew with the tensors' number
    least = base.predicted_bytes - sum(entry.bytes for entry in base.linears)
    least += sum(min(offer.bytes for offer in part.offers) for part in parts)
    raise WorkbenchError(
        "{size} GB cannot be reached: the smallest mix takes about {least} GB.",
        "Choose a larger size, larger groups, or a smaller model." if set(widths) & set(LOW)
        else "Choose a larger size or larger groups, or allow 2 and 3 bits.",
        size=f"{size / 1e9:.4g}", least=_gigabytes_above(least),
    )  # fmt: skip


def _no_less(parts: list[Part], room: int) -> list[Part]:
    """The parts, where refined layers get no fewer bytes than the recipe gives if there is room for the recipe.

    Refinement, and layers that make up for those before them, leave less of the worst layers' damage than is predicted
    of each alone: on SmolLM2 at group 32 a mix that coarsened groups to widen 24 layers lost 7 % (KL of three seeds).
    """
    if sum(part.base.bytes for part in parts) > room:
        return parts
    return [
        replace(part, offers=tuple(offer for offer in part.offers if offer.bytes >= part.base.bytes) or part.offers)
        if part.base.choice.refine else part
        for part in parts
    ]  # fmt: skip


def _gigabytes_above(size: int) -> str:
    """Four digits of a number of bytes in GB, never less than it is."""
    step = 10 ** (math.floor(math.log10(max(size, 1))) - 3)
    return f"{math.ceil(size / step) * step / 1e9:.4g}"


def _prepared(
    model: Model, recipe: Recipe, measured: Iterable[SensitivityMeasured], widths: Sequence[int]
) -> tuple[Plan, list[Part], tuple[str, ...]]:
    base = plans.make(model, recipe)
    known = {event.name: event for event in measured}
    planned = {entry.linear.name: entry for entry in base.linears}
    stored = {tensor.name: tensor for tensor in model.tensors}
    parts, seen = [], set()
    for linears in _blocks(model).values():
        for linear in linears:
            if linear.name in seen:
                continue
            together = reach.siblings(linears, linear.name)
            seen |= {each.name for each in together}
            parts.append(
                _part(stored, [planned[each.name] for each in together], known, widths, recipe.tensor_parallel)
            )
    unmeasured = tuple(linear.name for linear in model.linears if linear.name not in known)
    return base, parts, unmeasured


def _blocks(model: Model) -> dict[int, list[Linear]]:
    blocks: dict[int, list[Linear]] = {}
    for linear in model.linears:
        blocks.setdefault(linear.block, []).append(linear)
    return blocks


def _part(
    stored: Mapping[str, Tensor],
    together: list[Planned],
    known: Mapping[str, SensitivityMeasured],
    widths: Sequence[int],
    ranks: int,
) -> Part:
    block, names = together[0].linear.block, tuple(entry.linear.name for entry in together)
    own = together[0].choice
    measures = [known.get(name) for name in names]
    size = sum(entry.bytes for entry in together)
    if own.kept or None in measures:
        damage = 0.0 if own.kept else sum(_damage(measure, own) for measure in measures if measure)
        only = Offer(own, size, damage)
        return Part(block, names, (only,), only)
    linears = [entry.linear for entry in together]
    offers = []
    for choice in _choices(own, set.intersection(*(set(measure.damage) for measure in measures)), widths):
        if _fits(linears, choice, ranks):
            taken = sum(sizes.stored_bytes(each, choice, stored.get(f"{each.name}.weight")) for each in linears)
            offers.append(Offer(choice, taken, sum(_damage(measure, choice) for measure in measures)))
    base = Offer(own, size, sum(_damage(measure, own) for measure in measures))
    if base not in offers and (_fits(linears, own, ranks) or not offers):
        offers.append(base)
    return Part(block, names, tuple(offers), base)


def _fits(linears: Iterable[Linear], choice: Choice, ranks: int) -> bool:
    """Whether the groups divide what each GPU multiplies."""
    if choice.kept or choice.group_size == WHOLE_ROW:
        return True
    return not any(width(linear, ranks) % choice.group_size for linear in linears)


def _choices(own: Choice, known: set[str], widths: Sequence[int]) -> Iterable[Choice]:
    """The recipe's choice at every width and group size that was measured, and keeping the layer."""
    for key in sorted(known):
        bits, group = map(int, key.split("/"))
        if bits in widths:
            yield replace(own, bits=bits, group_size=group, symmetric=own.symmetric if bits < 8 else True)
    if 16 in widths:
        yield KEEP


def _damage(measure: SensitivityMeasured, choice: Choice) -> float:
    if choice.kept:
        return 0.0
    found = measure.damage.get(f"{choice.bits}/{choice.group_size}")
    plain = found if found is not None else measure.damage[f"{choice.bits}/{measure.group_size}"]
    return plain * measure.remaining.get(choice.method, 1.0)


def _proposal(
    recipe: Recipe, base: Plan, parts: list[Part], chosen: tuple[int, ...], unmeasured: tuple[str, ...]
) -> Proposal:
    blocks = _blocks(base.model)
    for part, index in zip(parts, chosen, strict=True):
        if (offer := part.offers[index]) != part.base:
            recipe = with_rules(recipe, reach.patterns(blocks[part.block], part.names[0], False), offer.choice)
    plan = plans.make(base.model, recipe)
    return Proposal(
        recipe=recipe,
        base=base.recipe,
        plan=plan,
        bits=average_bits(plan),
        damage=sum(part.offers[index].damage for part, index in zip(parts, chosen, strict=True)),
        base_bits=average_bits(base),
        base_damage=sum(part.base.damage for part in parts),
        unmeasured=unmeasured,
    )


def average_bits(plan: Plan) -> float:
    """Stored bits per weight over all linear layers, kept ones included."""
    return 8 * sum(entry.bytes for entry in plan.linears) / max(1, sum(entry.linear.weights for entry in plan.linears))
