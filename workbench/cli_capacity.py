"""`lathe capacity`: what of a model and its context a device holds, by arithmetic and as earlier starts measured it."""

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import figures, terminal
from workbench.words import say

SHOWN = 8  # starts; a program gets all


def capacity(
    folder: Annotated[Path, typer.Argument(help="A model folder with config.json and safetensors.")],
    context: Annotated[int | None, typer.Option(help="Tokens of context per conversation.")] = None,
    kv_gib: Annotated[
        float | None, typer.Option(help="Memory for the KV cache in GiB, in place of what is free.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")] = False,
) -> None:
    """How much of the model and its context the device holds, beside what earlier starts measured."""
    from workbench.catalog import describe

    rows = describe.capacities(folder, context, kv_gib)
    starts = _starts(folder, context, kv_gib)
    if as_json:
        keys = ("device", "computed_in", "precision")
        terminal.print_json(
            [
                row | {"measured": [each for each in starts if all(each[key] == row[key] for key in keys)]}
                for row in rows
            ]
        )
        return
    describe.print_capacities(rows)
    if starts:
        _print_starts(starts[:SHOWN])


def _starts(folder: Path, context: int | None, kv_gib: float | None) -> list[dict[str, Any]]:
    """Each kind of start of this model that was made here: what it took, and the estimate that follows from it."""
    from workbench.catalog import describe
    from workbench.catalog.devices import devices
    from workbench.catalog.folder import inspect
    from workbench.engine import memory_kept
    from workbench.engine.fit import fit
    from workbench.engine.profile import Profile

    found, here = [], {device.name: device for device in devices()}
    for kept in memory_kept.of_model(folder):
        if device := here.get(kept.device):
            profile = Profile(folder, dtype=kept.choices.get("dtype", "auto"), context=context, kv_gib=kv_gib)
            made = fit(inspect(folder), profile, device, kept.memory)
            found.append(
                {"device": device.name, "at": kept.at, "choices": kept.choices, "memory": asdict(kept.memory)}
                | describe.capacity_of(made)
            )
    return found


def _print_starts(starts: list[dict[str, Any]]) -> None:
    terminal.table(
        (
            say("Started"), say("Type"), say("Speculation"), say("Weights"), say("Activations"), say("CUDA graphs"),
            say("Overhead"), say("KV cache"), say("Tokens that fit"), say("Context"),
        ),
        [
            (
                datetime.datetime.fromtimestamp(each["at"]).strftime("%Y-%m-%d %H:%M"), each["computed_in"],
                (each["choices"].get("speculation") or {}).get("method"),
                *(figures.bytes_of(each["memory"][part]) for part in ("weights", "activations", "graphs", "overhead")),
                figures.bytes_of(each["memory"]["kv_bytes"]), figures.tokens(each["memory"]["kv_tokens"]),
                figures.tokens(each["memory"]["context"]),
            )
            for each in starts
        ],
        title=say("Measured at earlier starts"),
    )  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command()(capacity)
