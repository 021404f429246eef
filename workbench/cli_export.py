"""The command that writes a quantized folder in another tool's format."""

from pathlib import Path
from typing import Annotated

import typer

from workbench import export as exports
from workbench import terminal
from workbench.catalog import describe


def register(app: typer.Typer) -> None:
    app.command()(export)


def export(
    folder: Annotated[Path, typer.Argument(help="A folder that was quantized here, with one scheme for all layers.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    form: Annotated[str, typer.Option("--format", help="awq, gptq or gptq_v2.")] = "awq",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an earlier result, once the new one is done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")] = False,
) -> None:
    """Write a quantized folder in AutoAWQ's or GPTQ's format, without rounding again."""
    from workbench.cli import run_job

    chosen = exports.plan(folder, form)  # before a worker is started for it
    job, events = run_job("export", exports.spec(chosen, output, replace))
    if as_json:
        terminal.print_json(describe.job(job, events))
