"""What could draft for a model, and the copy of a draft that was adapted to it."""

from pathlib import Path
from typing import Annotated

import typer

from workbench import adaption, figures, settings, terminal
from workbench.catalog import capacity
from workbench.catalog import folder as models
from workbench.engine import drafts as candidates
from workbench.engine import facts
from workbench.engine.drafts import Candidate
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.engine.speculation import NAMES, Speculation
from workbench.errors import WorkbenchError
from workbench.interrupt import run_until_done
from workbench.words import say

MARKS = {"fits": "✓", "adapt": "≈", "poor": "–", "refused": "✕"}
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command()(drafts)
    app.command("adapt-draft")(adapt)


def drafts(
    model: Annotated[Path, typer.Argument(help="The folder of the model to draft for.")],
    folders: Annotated[
        list[Path] | None, typer.Option("--in", help="Look for drafts here instead of in the library; repeatable.")
    ] = None,
    draft_tokens: Annotated[int, typer.Option(help="Draft tokens a step.")] = 4,
    context: Annotated[int | None, typer.Option(help="Context length in tokens.")] = None,
    as_json: Json = False,
) -> None:
    """Every way to draft tokens for a model, with a verdict and its reasons."""
    target = models.inspect(model)
    profile = Profile(target.folder, context=context, speculation=Speculation(tokens=draft_tokens))
    found = models.scan(folders or settings.load().library)
    listed = candidates.listing(target, profile, found, capacity.devices()[0], _facts())
    if as_json:
        terminal.print_json([described(each) for each in listed])
        return
    rows = [
        (MARKS[each.verdict], each.name, NAMES.get(each.method, each.method), figures.ratio(each.speedup), _text(each))
        for each in listed
    ]
    terminal.table(("", say("Draft"), say("Method"), say("Speed at best"), say("Why")), rows)


def adapt(
    draft: Annotated[Path, typer.Argument(help="The folder of the draft.")],
    model: Annotated[Path, typer.Argument(help="The folder of the model that it shall draft for.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The folder to make.")] = None,
) -> None:
    """Copy a draft with its rows for tokens in the model's order, where padding or added tokens differ."""
    from workbench.cli import run_job

    chosen = adaption.plan(draft, model)  # before a worker is started for it
    where = output or adaption.proposed(draft.resolve(), model.resolve())
    run_job("adapt", adaption.spec(chosen, where))
    terminal.out.print(str(where), markup=False)


def described(candidate: Candidate) -> dict[str, object]:
    """A candidate for programs."""
    return {
        "name": candidate.name, "method": candidate.method, "verdict": candidate.verdict,
        "folder": str(candidate.folder) if candidate.folder else None, "most_tokens": candidate.most,
        "cost": candidate.cost, "speedup": candidate.speedup, "reasons": _lines(candidate),
    }  # fmt: skip


def _lines(candidate: Candidate) -> list[str]:
    """The reason for the verdict first, with its next step; of one that is refused nothing else matters."""
    return [" ".join(str(part) for part in (reason.sentence, reason.hint) if part) for reason in candidate.ordered]


def _text(candidate: Candidate) -> str:
    return "\n".join(_lines(candidate))


def _facts() -> EngineFacts | None:
    """What the engine can; the list is of use without one as well."""
    try:
        return run_until_done(facts.ask(settings.load().interpreter))
    except WorkbenchError as error:
        terminal.print_error(error)
        return None
