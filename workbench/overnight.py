"""Several recipes for one model, one after the other, and what came of them: a table and KL against size."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from workbench import figures, jobs, paths, quant_report, scatter
from workbench import plan as plans
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.events import Event, Finished, QualityMeasured
from workbench.recipe import Recipe
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
    found = catalog.inspect(model)
    outcomes: list[Outcome] = []
    directory.mkdir(parents=True, exist_ok=True)
    for recipe in _named(chosen):
        outcomes.append(await _one(found, recipe, directory, settings, on_event, replaced))
        (directory / PAGE).write_text(page(found.name, outcomes), encoding="utf-8")
    return outcomes


def page(model: str, outcomes: list[Outcome]) -> str:
    """The table and the picture as one HTML page."""
    environment = Environment(
        loader=FileSystemLoader(paths.RESOURCES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(say=say, figures=figures, language=language())
    points = [
        scatter.Point(outcome.name, outcome.size / 1e6, outcome.kl, bool(outcome.failure))
        for outcome in outcomes
        if outcome.size and outcome.kl is not None and outcome.kl > 0
    ]
    picture = scatter.svg(points, say("Size (MB)"), say("KL (nats per token)"))
    return environment.get_template("queue.html.j2").render(model=model, outcomes=outcomes, picture=picture)


async def _one(
    model: Model,
    recipe: Recipe,
    directory: Path,
    settings: Settings,
    on_event: Callable[[str, Event], None],
    replaced: bool,
) -> Outcome:
    output = directory / f"{model.name}-{recipe.name}"
    ended = Outcome(recipe.name, output)
    plan = plans.make(model, recipe, output)
    barred = [conflict for conflict in plan.conflicts if not (replaced and conflict.code == "output_exists")]
    if barred:
        return replace(ended, failure=barred[0].sentence)
    spec = {
        "model": str(model.folder), "output": str(output), "recipe": recipes.to_dict(recipe), "replace": replaced,
        "reuse": True,
    }  # fmt: skip
    job = jobs.create("quantize", spec)
    began, events, failure = time.monotonic(), [], None

    def take(event: Event) -> None:
        events.append(event)
        on_event(recipe.name, event)

    try:
        await jobs.run(job, take, settings)
    except WorkbenchError as error:
        failure = Sentence(error.message, error.values)
    measured = next((event for event in events if isinstance(event, QualityMeasured)), None)
    finished = next((event for event in events if isinstance(event, Finished)), None)
    return replace(
        ended,
        job=job,
        # A result that failed its checks has a size and figures as well, and its place in the picture.
        size=finished.size if finished else _bytes(output.with_name(f"{output.name}.failed")) if measured else None,
        kl=measured.kl if measured else None,
        perplexity=measured.perplexity if measured else None,
        agreement=measured.top1_agreement if measured else None,
        average_bits=plan.average_bits,
        seconds=time.monotonic() - began,
        failure=failure,
    )


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _named(chosen: Iterable[Recipe]) -> Iterable[Recipe]:
    """Each with a name of its own, fit for a folder."""
    taken: set[str] = set()
    for recipe in chosen:
        base = quant_report.file_name(recipe.name) or "recipe"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        yield replace(recipe, name=name)
