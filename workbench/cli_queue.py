"""`lathe queue`: several recipes at once, or the queue that the window keeps."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench import settings, terminal
from workbench.errors import WorkbenchError
from workbench.interrupt import run_until_done
from workbench.words import say

if TYPE_CHECKING:  # the program starts without them
    from workbench.overnight import Outcome
    from workbench.waiting_line import WaitingLine


def queue(
    folder: Annotated[
        Path | None, typer.Argument(help="A model folder with config.json and safetensors; none: the kept queue.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The folder for all results.")] = None,
    recipe: Annotated[list[str] | None, typer.Option("--recipe", help="As often as there are recipes.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace earlier results.")] = False,
    later: Annotated[bool, typer.Option("--later", help="Put them into the kept queue and run nothing yet.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Work through the kept queue.")] = False,
    remove: Annotated[int | None, typer.Option("--remove", help="Take the one of this number out of it.")] = None,
    earlier: Annotated[int | None, typer.Option("--earlier", help="Let the one of this number come earlier.")] = None,
) -> None:
    """Quantize by several recipes, one after the other, and compare them: KL against size. Status 1 if any failed.

    Without a model folder it is the queue that the window shows: listed, changed or worked through.
    """
    if folder is None:
        _kept(start, remove, earlier)
        return
    if output is None or not recipe:
        raise WorkbenchError("A queue needs recipes and a place for the results.", "Give --recipe and --output.")
    if later:
        _add(folder, output.resolve(), recipe)
        return
    from workbench import overnight
    from workbench import recipe as recipes

    chosen, place = [recipes.load(name) for name in recipe], output.resolve()
    with terminal.JobProgress() as progress:
        outcomes = run_until_done(
            overnight.run(folder, chosen, place, settings.load(), lambda name, event: progress(event), replace)
        )
    _print(outcomes)
    print(place / overnight.PAGE)
    if any(row.failure for row in outcomes):
        raise typer.Exit(1)


def _add(folder: Path, place: Path, names: Iterable[str]) -> None:
    from workbench import recipe as recipes
    from workbench.waiting_line import WaitingLine

    line = WaitingLine()
    for name in names:
        line.add(folder, recipes.load(name), place)
    _list(line)


def _kept(start: bool, remove: int | None, earlier: int | None) -> None:
    from workbench.waiting_line import WaitingLine

    line = WaitingLine()
    for number in (remove, earlier):
        if number is not None and not 1 <= number <= len(line.entries):
            raise WorkbenchError("The queue has no number {number}.", "`lathe queue` lists it.", number=number)
    if remove is not None:
        line.remove(line.entries[remove - 1])
    elif earlier is not None:
        line.move(line.entries[earlier - 1], -1)
    if start:
        with terminal.JobProgress() as progress:
            run_until_done(line.run(settings.load(), lambda entry, event: progress(event)))
    _list(line)
    if start:
        print(line.page())
        if any(entry.outcome and entry.outcome.failure for entry in line.entries):
            raise typer.Exit(1)


def _list(line: "WaitingLine") -> None:
    from workbench.overnight import Outcome

    waits = Outcome("", Path())
    _print([entry.outcome or waits for entry in line.entries], [entry.recipe.name for entry in line.entries])


def _print(outcomes: "list[Outcome]", names: list[str] | None = None) -> None:
    """The table, then where each result is or why there is none; the numbers are those that the options take."""
    from workbench import figures

    terminal.table(
        ("", say("Recipe"), say("Bits"), say("Size"), "KL", say("Perplexity"), say("Time")),
        [
            (
                str(number), names[number - 1] if names else row.name, figures.number(row.average_bits),
                figures.bytes_of(row.size), f"{row.kl:.4f}" if row.kl is not None else None,
                figures.number(row.perplexity, 4), figures.clock(row.seconds),
            )
            for number, row in enumerate(outcomes, 1)
        ],
    )  # fmt: skip
    for number, row in enumerate(outcomes, 1):
        told = f"✕ {row.failure}" if row.failure else str(row.output) if row.name else say("waiting")
        terminal.out.print(f"{number}  {told}", markup=False, soft_wrap=not row.failure)
