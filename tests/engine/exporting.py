"""Packed models of one scheme, and exporting them, for the tests of the formats."""

from pathlib import Path

from compressed_tensors.quantization import QuantizationArgs
from tiny_models import ATTENTION, MLP

from workbench import export as exports
from workbench.events import Event
from workbench.quantization import export


def uniform(bits=4, group=32, symmetric=True) -> dict[str, QuantizationArgs]:
    args = QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy="channel")
    if group:
        args = QuantizationArgs(num_bits=bits, symmetric=symmetric, group_size=group, strategy="group")
    return {ATTENTION: args, MLP: args}


def written(folder: Path, form: str, name: str = "", **chosen) -> list[Event]:
    """Export a folder and return the job's events."""
    plan = exports.plan(folder, form)
    return list(export.run(exports.spec(plan, folder.parent / (name or form), **chosen), folder.parent))
