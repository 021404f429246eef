"""What lies in the folders as rows of the table, and what stands against an action with one of them."""

from collections.abc import Iterable
from pathlib import Path

from ui.models_table import Row
from workbench.catalog import capacity, fit
from workbench.catalog import folder as catalog
from workbench.catalog.capacity import Device
from workbench.catalog.folder import Model, Problem, Unreadable
from workbench.engine import formats
from workbench.engine.facts import EngineFacts
from workbench.engine.formats import Refusal
from workbench.words import Sentence


def look(folders: Iterable[Path], device_name: str | None) -> tuple[list[Row], list[Device]]:
    """Read the folders and weigh each model on the device of this name, else the first. Blocks."""
    devices = capacity.devices()
    device = next((each for each in devices if each.name == device_name), devices[0])
    rows = [
        Row(entry, fit.by_precision(entry, device) if isinstance(entry, Model) else {})
        for entry in catalog.scan(folders)
    ]
    return sorted(rows, key=lambda row: row.model is None), devices


def reason_against(row: Row, action: str) -> Sentence | None:
    """Why "quantize" or "serve" cannot be done with this model; None when it can."""
    entry = row.entry
    if isinstance(entry, Unreadable):
        return Sentence(entry.error.message, entry.error.values)
    blocking: tuple[Problem, ...] = entry.blocking(action)
    if blocking:
        return blocking[0].sentence
    return row.refused.sentence if row.refused and action == "serve" else None


def refusal(row: Row, engine: EngineFacts | None) -> Refusal | None:
    """Why this engine does not serve the model's weights; None where it does, or where there is none."""
    stored = row.model.quantization if row.model else None
    return formats.refusal(stored, engine) if stored and engine else None
