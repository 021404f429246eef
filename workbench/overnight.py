"""Several recipes, one after the other, and what came of them: a table and KL against size."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from workbench import admission, figures, jobs, paths, quant_report, scatter
from workbench import plan as plans
from workbench import recipe as recipes
from workbench.admission import Ask
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Event, Finished
from workbench.quant_events import QualityMeasured
from workbench.recipe import Recipe
from workbench.scatter import Point
from workbench.settings import Settings
from workbench.words import Sentence, language, say

PAGE = "queue.html"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One recipe's end. Figures are None where the run did not come so far; `failure` says why it ended early."""

    name: str
    output: Path
    job: Path | None = None
    size: int | None = None
    kl: float | None = None
    perplexity: float | None = None
    agreement: float | None = None
    average_bits: float | None = None
    seconds: float | None = None
    failure: Sentence | None = None


@dataclass(eq=False, slots=True)
class Entry:
    """A model and a recipe with a name of its own, and where the result goes. `outcome` is None until it ended."""

    model: Path
    recipe: Recipe
    output: Path
    outcome: Outcome | None = None


def entry(model: Path, recipe: Recipe, directory: Path, others: Iterable[Entry], free: bool = False) -> Entry:
    """A new entry beside `others`, named after the recipe; with `free` where no folder is yet."""
    found = catalog.inspect(model)
    base = quant_report.file_name(recipe.name) or "recipe"
    taken = {other.output for other in others}
    name, number = base, 1
    while (output := directory / f"{found.name}-{name}") in taken or (free and output.exists()):
        number += 1
        name = f"{base}-{number}"
    return Entry(found.folder, replace(recipe, name=name), output)


async def run(
    model: Path,
    chosen: Iterable[Recipe],
    directory: Path,
    settings: Settings,
    on_event: Callable[[str, Event], None],
    replaced: bool = False,
) -> list[Outcome]:
    """Quantize `model` by each recipe into a folder of its own in `directory`; a failure does not stop the rest.

    `on_event` gets the recipe's name with each event. The page PAGE in `directory` is written anew after each run.
    """
    entries: list[Entry] = []
    for recipe in chosen:
        entries.append(entry(model, recipe, directory, entries))
    directory.mkdir(parents=True, exist_ok=True)
    for each in entries:
        name = each.recipe.name
        each.outcome = await made(each, settings, lambda event, name=name: on_event(name, event), replaced)
        (directory / PAGE).write_text(page(entries), encoding="utf-8")
    return [each.outcome for each in entries]


async def made(
    entry: Entry,
    settings: Settings,
    on_event: Callable[[Event], None],
    replaced: bool = False,
    ask: Ask = admission.anyway,
) -> Outcome:
    """Quantize by one entry; what came of it, a failure included. Raises only when cancelled. `ask` as in jobs."""
    ended = Outcome(entry.recipe.name, entry.output)
    try:
        model = catalog.inspect(entry.model)
    except WorkbenchError as error:
        return replace(ended, failure=_told(error))
    plan = plans.make(model, entry.recipe, entry.output)
    barred = [conflict for conflict in plan.conflicts if not (replaced and conflict.code == "output_exists")]
    if barred:
        hint = barred[0].hint or Sentence("`lathe plan` and the Quantize page have ways out.")
        return replace(ended, failure=_both(barred[0].sentence, hint))
    spec = {
        "model": str(model.folder), "output": str(entry.output), "recipe": recipes.to_dict(entry.recipe),
        "replace": replaced, "reuse": True,
    }  # fmt: skip
    job = jobs.create("quantize", spec)
    began, events, failure = time.monotonic(), [], None

    def take(event: Event) -> None:
        events.append(event)
        on_event(event)

    try:
        await jobs.run(job, take, settings, ask)
    except WorkbenchError as error:
        failure = _told(error)
    measured = next((event for event in events if isinstance(event, QualityMeasured)), None)
    finished = next((event for event in events if isinstance(event, Finished)), None)
    marked = entry.output.with_name(f"{entry.output.name}.failed")
    return replace(
        ended,
        job=job,
        # A result that failed its checks has a size and figures as well, and its place in the picture.
        size=finished.size if finished else _bytes(marked) if measured else None,
        kl=measured.kl if measured else None,
        perplexity=measured.perplexity if measured else None,
        agreement=measured.top1_agreement if measured else None,
        average_bits=plan.average_bits,
        seconds=time.monotonic() - began,
        failure=failure,
    )


def points(entries: Iterable[Entry]) -> list[Point]:
    """What has ended as points of size in MB and KL; a logarithm has no place for a KL of 0."""
    ended = [entry.outcome for entry in entries if entry.outcome]
    return [
        Point(outcome.name, outcome.size / 1e6, outcome.kl, bool(outcome.failure))
        for outcome in ended
        if outcome.size and outcome.kl is not None and outcome.kl > 0
    ]


def page(entries: Iterable[Entry]) -> str:
    """The table and a picture of each model as one HTML page."""
    environment = Environment(
        loader=FileSystemLoader(paths.RESOURCES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(say=say, figures=figures, language=language())
    of_models: dict[Path, list[Entry]] = {}
    for each in entries:
        if each.outcome:
            of_models.setdefault(each.model, []).append(each)
    parts = [
        {
            "model": model.name,
            "outcomes": [each.outcome for each in ended],
            "picture": scatter.svg(points(ended), say("Size (MB)"), say("KL (nats per token)")),
        }
        for model, ended in of_models.items()
    ]
    return environment.get_template("queue.html.j2").render(parts=parts)


def _told(error: WorkbenchError) -> Sentence:
    """What went wrong with its next step: nobody is there when it happens."""
    told = Sentence(error.message, error.values)
    return _both(told, Sentence(error.hint_template, error.values)) if error.hint_template else told


def _both(told: Sentence, hint: Sentence) -> Sentence:
    return Sentence("{result} {problem}", {"result": told, "problem": hint})


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
