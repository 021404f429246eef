"""Cells of the strip beside those of a plan and its run: what each layer's rounding costs, and the bits of a mix."""

import math
from collections.abc import Iterable, Mapping

from ui.widgets.block_strip import Cell
from ui.widgets.module_details import layer_in_block
from ui.widgets.scheme import scheme
from workbench import allocation, figures, sensitivities
from workbench.catalog.linears import Linear
from workbench.choice import BITS
from workbench.events import SensitivityMeasured
from workbench.plan import Plan, Planned
from workbench.words import say

DAMAGE, ERROR = "damage", "error"


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
    column = layer_in_block(linear.name, linear.block)
    parts = [say("block {block}", block=linear.block), column]
    error, damage = sensitivities.at(found, bits) if found else (None, None)
    value = damage if measure == DAMAGE else error
    if found is None or value is None:
        return Cell(linear.name, linear.block, column, "planned", "", " · ".join((*parts, say("not measured"))))
    for width in BITS:
        sqnr, mnat = figures_at(found, width)
        parts.append(say("{bits} bit: {sqnr} dB, {damage} mnat", bits=width, sqnr=sqnr, damage=mnat))
    figure = figures_at(found, bits)[1] if measure == DAMAGE else ""
    db = -10 * math.log10(value) if value > 0 else None
    if db is None:  # nothing is lost: zero weights
        return Cell(linear.name, linear.block, column, "planned", "0", " · ".join(parts))
    return Cell(linear.name, linear.block, column, "done", "", " · ".join(parts), db, figure)


def _width_cell(planned: Planned, before: Planned | None) -> Cell:
    linear, choice = planned.linear, planned.choice
    column, bits = layer_in_block(linear.name, linear.block), allocation.width(choice)
    parts = [
        say("block {block}", block=linear.block),
        column,
        scheme(choice.method, choice.bits, choice.group_size, choice.symmetric),
    ]
    if before and before.choice != choice:
        old = before.choice
        words = scheme(old.method, old.bits, old.group_size, old.symmetric)
        parts.append(say("in the recipe: {choice}", choice=words))
    return Cell(linear.name, linear.block, column, "width", str(bits), " · ".join(parts), bits=bits)
