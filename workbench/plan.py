"""What a recipe means for one model: every linear's choice and size, and what cannot work, before anything runs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from workbench import conflicts, matching, remarks, sizes
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.conflict import Conflict, Fix
from workbench.matching import Match
from workbench.recipe import AUTO, GROUP_SIZES, Choice, Recipe
from workbench.sizes import Planned
from workbench.slices import width

__all__ = ["Conflict", "Fix", "Match", "Plan", "Planned", "make"]


@dataclass(frozen=True, slots=True)
class Plan:
    """`linears` covers every linear, kept ones included; `kept` names all modules that stay as they are.

    `predicted_bytes` is the size of the resulting safetensors files. `average_bits` is what one weight of a
    quantized linear takes on average with its scales and zero points; None when nothing is quantized. `matches` says
    what each rule of the recipe reaches, in the recipe's order.
    """

    model: Model
    recipe: Recipe
    linears: tuple[Planned, ...]
    kept: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    warnings: tuple[Conflict, ...]
    predicted_bytes: int
    average_bits: float | None
    matches: tuple[Match, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether a conflict stands in the way of running."""
        return bool(self.conflicts)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """All ways out, those of the conflicts before those of the warnings."""
        return tuple(fix for found in (*self.conflicts, *self.warnings) for fix in found.fixes)

    @property
    def quantized(self) -> tuple[Planned, ...]:
        return tuple(planned for planned in self.linears if not planned.choice.kept)


def make(model: Model, recipe: Recipe, output: Path | None = None) -> Plan:
    """The plan of `recipe` for `model`, written to `output` later. Reads no weights."""
    matches = matching.find(recipe.rules, [linear.name for linear in model.linears])
    planned = sizes.planned(model, _choices(model, recipe, matches.chosen))
    packed = [entry for entry in planned if not entry.choice.kept]
    weights = sum(entry.linear.weights for entry in packed)
    kept = tuple(dict.fromkeys((*(entry.linear.name for entry in planned if entry.choice.kept), *_others(model))))
    draft = Plan(
        model, recipe, planned, kept, (), (), sizes.checkpoint(model, planned),
        8 * sum(entry.bytes for entry in packed) / weights if weights else None, matches.of_rules,
    )  # fmt: skip
    return replace(
        draft,
        conflicts=conflicts.find(model, recipe, planned, matches.of_rules, output, draft.predicted_bytes),
        warnings=remarks.warn(recipe, planned),
    )


def _choices(model: Model, recipe: Recipe, chosen: dict[str, Choice]) -> Iterable[tuple[Linear, Choice]]:
    auto = {
        True: _auto([linear for linear in model.linears if linear.in_attention], recipe, otherwise=(32,)),
        False: _auto([linear for linear in model.linears if not linear.in_attention], recipe, otherwise=(64, 32)),
    }
    sized: dict[tuple[Choice, bool], Choice] = {}
    for linear in model.linears:
        choice = chosen.get(linear.name) or (recipe.attention if linear.in_attention else recipe.mlp)
        if choice.group_size == AUTO:
            key = choice, linear.in_attention
            choice = sized.get(key) or sized.setdefault(key, replace(choice, group_size=auto[linear.in_attention]))
        yield linear, choice


def _auto(linears: list[Linear], recipe: Recipe, otherwise: tuple[int, ...]) -> int:
    """The group size for a part of the model, by the rule that recipe.py states; slices for GPUs count as inputs."""
    inputs = {width(linear, recipe.tensor_parallel) for linear in linears}
    sizes = (GROUP_SIZES[0], *otherwise)
    return next((size for size in sizes if all(width % size == 0 for width in inputs)), sizes[-1])


def _others(model: Model) -> Iterable[str]:
    """The modules that are never quantized: embeddings, norms, head."""
    linears = {linear.name for linear in model.linears}
    for tensor in model.tensors:
        module, _, leaf = tensor.name.rpartition(".")
        if leaf == "weight" and module not in linears:
            yield module
