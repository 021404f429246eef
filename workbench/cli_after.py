"""What there is to do with a quantization that runs or has ended: change its recipe, go on, report, queue several."""

from pathlib import Path
from typing import Annotated

import typer

from workbench import jobs, paths, settings, terminal
from workbench.cli_queue import queue
from workbench.errors import WorkbenchError
from workbench.interrupt import run_until_done
from workbench.words import say

JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job's folder or its name; empty: the newest.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command()(report)
    app.command()(amend)
    app.command()(resume)
    app.command()(queue)


def report(job: JobName = "") -> None:
    """Print where the report of a quantization is; it is made first where the run came to no end."""
    from workbench import quant_report

    print(quant_report.of_job(find(job)))


def amend(
    job: JobName = "",
    recipe: Annotated[str, typer.Option("--recipe", help="A name that `lathe recipes` lists, or a recipe file.")] = "",
) -> None:
    """Change the recipe of a running quantization for the blocks that it has not begun."""
    from dataclasses import replace

    from workbench import amend as amendments
    from workbench import recipe as recipes
    from workbench.catalog import describe

    folder = find(job)
    if not recipe:
        raise WorkbenchError("No recipe was given.", "Name one with --recipe.")
    base = amendments.current(folder).recipe
    # A recipe file speaks of methods here; the text was read long ago.
    kept = {name: getattr(base, name) for name in amendments.CALIBRATION}
    made = amendments.amend(folder, replace(recipes.load(recipe), **kept))
    if made.blocks:
        describe.print_plan(made)
        raise WorkbenchError(
            "The recipe cannot run on this model; nothing was changed.", "Each line above says what to do."
        )
    terminal.out.print(say("The change waits for the next block."))


def resume(job: JobName = "") -> None:
    """Do once more what an ended job was asked to do; blocks that it had finished are taken over."""
    folder = jobs.again(find(job))
    with terminal.JobProgress() as progress:
        run_until_done(jobs.run(folder, progress, settings.load()))


def find(name: str) -> Path:
    """A quantization's folder by path or name; the newest for an empty one."""
    made = [job.folder for job in jobs.listing() if job.kind == "quantize"]
    if not name and not made:
        raise WorkbenchError("Nothing was quantized here yet.", "Start with `lathe quantize`.")
    if not name:
        return made[0]
    for folder in (Path(name), paths.inside_home("jobs") / name):
        if (folder / "job.json").is_file():
            return folder.resolve()
    raise WorkbenchError(
        "There is no job called {name}.", "Give its folder, or the name of one in {jobs}.",
        name=name, jobs=str(paths.inside_home("jobs")),
    )  # fmt: skip
