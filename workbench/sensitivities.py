"""What a sensitivity scan measures of each layer, and the scans that are kept."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench import moments_kept
from workbench import plan as plans
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.choice import BITS, GROUP_SIZES, WHOLE_ROW, Choice
from workbench.events import SensitivityMeasured
from workbench.recipe import Recipe


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
    """Every bit width at the layer's own group size, and 4 bits at the other sizes that divide its inputs."""
    sizes = [size for size in GROUP_SIZES if not linear.in_features % size]
    own = choice.group_size if choice.group_size in (WHOLE_ROW, *sizes) else (sizes or [WHOLE_ROW])[-1]
    rungs = [Rung(bits, own, choice.symmetric or bits == 8) for bits in BITS]
    return (*rungs, *(Rung(4, size, choice.symmetric) for size in sizes if size != own))


def file_of(model: Model, recipe: Recipe) -> Path:
    """Where the scan for this model and what the recipe says of groups, symmetry and calibration lies or would lie."""
    rungs = {
        entry.linear.name: [asdict(rung) for rung in ladder(entry.linear, entry.choice)]
        for entry in plans.make(model, recipe).linears
    }
    return moments_kept.scan_file(moments_kept.folder_of(model.folder, recipe), rungs)


def kept(model: Model, recipe: Recipe) -> tuple[SensitivityMeasured, ...] | None:
    """The scan made before; None where there is none that can be read."""
    return read(file_of(model, recipe))


def read(file: Path) -> tuple[SensitivityMeasured, ...] | None:
    """The scan in a file of ours; None where there is none that can be read."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return tuple(SensitivityMeasured(**fields) for fields in stored)
    except (OSError, ValueError, TypeError):
        return None


def at(found: SensitivityMeasured, bits: int) -> tuple[float | None, float | None]:
    """(relative output error, damage in nats per token) of a layer at its own group size; None: not measured."""
    name = f"{bits}/{found.group_size}"
    return found.output_errors.get(name), found.damage.get(name)


def keep(path: Path, found: Sequence[SensitivityMeasured]) -> None:
    """Write a scan; the file is whole or not there."""
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps([asdict(event) for event in found]), encoding="utf-8")
    beside.replace(path)
