"""Cells of the strip beside those of a plan and its run: what each layer's rounding costs, and the bits of a mix."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ui.widgets.module_details import layer_in_block
from ui.widgets.scheme import scheme
from ui.widgets.strip_cell import Cell
from workbench import allocation, figures, sensitivities
from workbench.catalog.linears import Linear
from workbench.choice import BITS, Choice
from workbench.plan import Plan, Planned
from workbench.quant_events import SensitivityMeasured
from workbench.words import say

DAMAGE, ERROR = "damage", "error"


@dataclass(frozen=True, slots=True)
class HeatWords:
    """What is known of a layer's sensitivity, once it is read as text."""

    linear: Linear
    found: SensitivityMeasured | None

    def __str__(self) -> str:
        parts = [say("block {block}", block=self.linear.block), layer_in_block(self.linear.name, self.linear.block)]
        if self.found is None:
            parts.append(say("not measured"))
        else:
            for width in BITS:
                sqnr, mnat = figures_at(self.found, width)
                parts.append(say("{bits} bit: {sqnr} dB, {damage} mnat", bits=width, sqnr=sqnr, damage=mnat))
        return " · ".join(parts)


@dataclass(frozen=True, slots=True)
class WidthWords:
    """A layer's choice in a mix, and the recipe's where that is another."""

    planned: Planned
    before: Planned | None

    def __str__(self) -> str:
        linear, choice = self.planned.linear, self.planned.choice
        parts = [say("block {block}", block=linear.block), layer_in_block(linear.name, linear.block), _scheme(choice)]
        if self.before and self.before.choice != choice:
            parts.append(say("in the recipe: {choice}", choice=_scheme(self.before.choice)))
        return " · ".join(parts)


def heat_cells(
    plan: Plan, found: Mapping[str, SensitivityMeasured], bits: int, measure: str, names: Iterable[str] | None = None
) -> list[Cell]:
    """The layers coloured by their damage or output error at `bits`; of all of the plan's, or of those in `names`."""
    wanted = None if names is None else set(names)
    return [
        _heat_cell(planned.linear, found.get(planned.linear.name), bits, measure)
        for planned in plan.linears
        if wanted is None or planned.linear.name in wanted
    ]


def width_cells(plan: Plan, before: Mapping[str, Planned]) -> list[Cell]:
    """The layers coloured by their bits in `plan`; what is other than `before` is said in their words."""
    return [_width_cell(planned, before.get(planned.linear.name)) for planned in plan.linears]


def figures_at(found: SensitivityMeasured, bits: int) -> tuple[str, str]:
    """(output SQNR in dB, damage in mnat) as people read them."""
    error, damage = sensitivities.at(found, bits)
    return figures.number(figures.sqnr_db(error)), figures.number(None if damage is None else 1000 * damage, 2)


def _heat_cell(linear: Linear, found: SensitivityMeasured | None, bits: int, measure: str) -> Cell:
    column, words = layer_in_block(linear.name, linear.block), HeatWords(linear, found)
    error, damage = sensitivities.at(found, bits) if found else (None, None)
    value = damage if measure == DAMAGE else error
    if not value:  # not measured, or weights of zero that lose nothing
        return Cell(linear.name, linear.block, column, "planned", "" if value is None else "0", words)
    figure = figures.number(1000 * value, 2) if measure == DAMAGE else ""
    return Cell(linear.name, linear.block, column, "done", "", words, -10 * math.log10(value), figure)


def _width_cell(planned: Planned, before: Planned | None) -> Cell:
    linear, bits = planned.linear, allocation.bits_of(planned.choice)
    column, words = layer_in_block(linear.name, linear.block), WidthWords(planned, before)
    return Cell(linear.name, linear.block, column, "width", str(bits), words, bits=bits)


def _scheme(choice: Choice) -> str:
    return scheme(choice.method, choice.bits, choice.group_size, choice.symmetric)
