"""Quantized folders in other tools' formats: what the engine makes of one, and the command that writes one."""

from pathlib import Path
from typing import Annotated

import typer

from workbench import export as exports
from workbench import settings, terminal
from workbench.catalog import describe
from workbench.catalog.model import Model
from workbench.engine import facts, formats
from workbench.engine.formats import Refusal
from workbench.errors import WorkbenchError
from workbench.interrupt import run_until_done
from workbench.words import say


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


def engine_of(model: Model) -> dict[str, str | bool | None] | None:
    """Whether the installed engine serves a quantized model, and why not; None for a plain one or without an engine."""
    try:
        refused = _refusal(model)
    except WorkbenchError:
        return None
    if model.quantization is None or not model.can_serve:
        return None
    said = {"reason": str(refused.sentence), "hint": str(refused.hint)} if refused else {"reason": None, "hint": None}
    return {"serves": refused is None, **said}


def print_engine(model: Model) -> None:
    """The same as a line for people."""
    if model.quantization is None or not model.can_serve:
        return
    try:
        refused = _refusal(model)
    except WorkbenchError as error:
        terminal.out.print("!", str(error), error.hint, markup=False)
        return
    if refused:
        terminal.out.print("✕", str(refused.sentence), str(refused.hint), markup=False)
    else:
        terminal.out.print(say("The installed engine can serve it."), markup=False)


def _refusal(model: Model) -> Refusal | None:
    if model.quantization is None:
        return None
    return formats.refusal(model.quantization, run_until_done(facts.ask(settings.load().interpreter)))
