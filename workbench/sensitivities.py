"""What a sensitivity scan measures of each layer, and the scans that are kept."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench import json_file, moments_kept
from workbench import plan as plans
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.choice import BITS, GROUP_SIZES, WHOLE_ROW, Choice
from workbench.quant_events import SensitivityMeasured
from workbench.recipe import Recipe
from workbench.sizes import Planned


@dataclass(frozen=True, slots=True)
class Rung:
    """One grid that a layer is judged on; `name` is its key in the events."""

    bits: int
    group_size: int
    symmetric: bool

    @property
    def name(self) -> str:
        return f"{self.bits}/{self.group_size}"


def ladder(linear: Linear, choice: Choice) -> tuple[Rung, ...]:
    """Every bit width at the layer's own group size, 4 bits at the other sizes that divide its inputs, and 8 bits at
    the coarsest: they gain nearly nothing from small groups, whose scales take up to half a bit of each weight."""
    sizes = [size for size in GROUP_SIZES if not linear.in_features % size]
    own = choice.group_size if choice.group_size in (WHOLE_ROW, *sizes) else (sizes or [WHOLE_ROW])[-1]
    rungs = [Rung(bits, own, choice.symmetric or bits == 8) for bits in BITS]
    rungs += [Rung(4, size, choice.symmetric) for size in sizes if size != own]
    return (*rungs, *(Rung(8, size, True) for size in sizes[:1] if size != own))


@dataclass(frozen=True, slots=True)
class Scan:
    """What is known of a model's layers at a recipe's groups and symmetry, by name in the plan's order.

    `missing` are the layers that a scan would still measure; `unreached` saw no calibration text and cannot be.
    """

    found: dict[str, SensitivityMeasured]
    missing: tuple[str, ...]
    unreached: tuple[str, ...]


def kept(model: Model, recipe: Recipe) -> Scan:
    """What scans of this model with this calibration text have found before, layer by layer."""
    measured, unreached = _read(moments_kept.scan_file(moments_kept.folder_of(model.folder, recipe)))
    known: dict[str, list[SensitivityMeasured]] = {}
    for event in measured:
        known.setdefault(event.name, []).append(event)
    found, missing = {}, []
    for entry in plans.make(model, recipe).linears:
        name = entry.linear.name
        fitting = [event for event in known.get(name, ()) if _fits(event, entry)]
        if fitting:
            found[name] = fitting[-1]
        elif name not in unreached:
            missing.append(name)
    return Scan(found, tuple(missing), tuple(unreached))


def keep(folder: Path, measured: Iterable[SensitivityMeasured], unreached: Iterable[str] = ()) -> Path:
    """Add to the scans that are kept with the statistics in `folder`; the file is whole or not there."""
    file = moments_kept.scan_file(folder)
    before, names = _read(file)
    events = {(event.name, event.group_size, event.symmetric): event for event in (*before, *measured)}
    beside = file.with_suffix(".tmp")
    stored = {"measured": [asdict(event) for event in events.values()], "unreached": sorted({*names, *unreached})}
    beside.write_text(json.dumps(stored), encoding="utf-8")
    return beside.replace(file)


def _fits(event: SensitivityMeasured, entry: Planned) -> bool:
    """Whether it was measured on the grids of the layer's choice; of a layer that is kept any grid will do."""
    if entry.choice.kept:
        return True
    own = ladder(entry.linear, entry.choice)[: len(BITS)]
    return event.symmetric == entry.choice.symmetric and all(rung.name in event.damage for rung in own)


def _read(file: Path) -> tuple[list[SensitivityMeasured], list[str]]:
    try:
        stored = json_file.read(file)
        return [SensitivityMeasured(**fields) for fields in stored["measured"]], list(stored["unreached"])
    except (OSError, ValueError, TypeError, KeyError):
        return [], []  # measured anew


def at(found: SensitivityMeasured, bits: int) -> tuple[float | None, float | None]:
    """(relative output error, damage in nats per token) of a layer at its own group size; None: not measured."""
    name = f"{bits}/{found.group_size}"
    return found.output_errors.get(name), found.damage.get(name)
