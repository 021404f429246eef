"""What a quantization did, in full: figures of every layer, checks, the exact recipe and the command that repeats it.

`report.json` and `report.html` lie in the job's folder with `recipe.json`; the result carries the same as lathe.json.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from workbench import figures, jobs, json_file, layer_picture, paths
from workbench import plan as plans
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed, Note
from workbench.plan import Plan
from workbench.quant_events import Amended, Checked, ModuleDone, QualityMeasured
from workbench.words import language, plain, say

PACKAGES = ("llm-lathe", "torch", "transformers", "compressed-tensors", "safetensors")
_LONG = ("before", "after", "levels")  # histograms: the job's events have them


def content(
    job: Path,
    spec: Mapping[str, Any],
    events: Iterable[Event],
    failure: WorkbenchError | None = None,
    plan: Plan | None = None,
) -> dict[str, Any]:
    """The report as plain values; sentences stay templates with values. `plan` is what every layer really got."""
    told = list(events)
    recipe = _last_recipe(spec, told)
    modules = {event.name: event for event in told if isinstance(event, ModuleDone)}
    plan = plan or plans.make(catalog.inspect(Path(spec["model"])), recipes.from_dict(recipe))
    return {
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "job": str(job),
        "model": str(spec["model"]),
        "output": str(spec["output"]),
        "command": command(job, spec),
        "recipe": recipe,
        "amended": [event.from_block for event in told if isinstance(event, Amended)],
        "predicted_bytes": plan.predicted_bytes,
        "original_bytes": plan.model.weight_bytes,
        "average_bits": plan.average_bits,
        "kept": list(plan.kept),
        "modules": [
            {name: value for name, value in asdict(event).items() if name not in _LONG} for event in modules.values()
        ],
        "fallbacks": [event.name for event in modules.values() if event.fallback],
        "quality": [asdict(event) for event in told if isinstance(event, QualityMeasured)],
        "checks": [asdict(event) for event in told if isinstance(event, Checked)],
        "notes": [asdict(event) for event in told if isinstance(event, Note)],
        "failure": {"message": failure.message, "hint": failure.hint_template, "values": plain(failure.values)}
        if failure
        else None,
        "packages": _packages(),
    }


def command(job: Path, spec: Mapping[str, Any]) -> str:
    """What makes the same result once more, in its place: an earlier one stays until the new one is done."""
    recipe = str(job / "recipe.json")
    return shlex.join(
        ["lathe", "quantize", str(spec["model"]), "-o", str(spec["output"]), "--recipe", recipe, "--replace"]
    )


def write(job: Path, report: dict[str, Any]) -> Path | None:
    """Write the files into the job's folder; the page's path. None where there is no job folder to write into."""
    if not (job / "job.json").is_file():
        return None
    (job / "recipe.json").write_text(_json(report["recipe"]), encoding="utf-8")
    (job / "report.json").write_text(_json(report), encoding="utf-8")
    return _page(job, report)


def of_job(job: Path) -> Path:
    """The page of a job's report in the chosen language, made from its events where the worker came to no end."""
    file = job / "report.json"
    try:
        if file.is_file():
            return _page(job, json_file.read(file))
    except (OSError, TemplateError, *jobs.DAMAGED):
        pass  # it is made once more, from the events
    try:
        spec, events = jobs.spec_of(job), list(jobs.replay(job))
        failed = next((event for event in events if isinstance(event, Failed)), None)
        failure = WorkbenchError(failed.message, failed.hint, **failed.values) if failed else None
        page = write(job, content(job, spec, events, failure))
    except (OSError, *jobs.DAMAGED) as error:
        raise WorkbenchError(
            "{path} is not the folder of a quantization.", "Jobs lie in the folder {jobs}.",
            path=str(job), jobs=str(paths.inside_home("jobs")),
        ) from error  # fmt: skip
    assert page is not None
    return page


def html(report: dict[str, Any]) -> str:
    """The page; everything that comes from a model or a file is escaped."""
    environment = Environment(
        loader=FileSystemLoader(paths.RESOURCES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(say=say, figures=figures, language=language())
    name, picture = Path(report["model"]).name, layer_picture.svg(report["modules"])
    return environment.get_template("quant_report.html.j2").render(report=report, name=name, picture=picture)


def _page(job: Path, report: dict[str, Any]) -> Path:
    page = job / "report.html"
    page.write_text(html(report), encoding="utf-8")
    return page


def _last_recipe(spec: Mapping[str, Any], events: list[Event]) -> dict[str, Any]:
    amended = [event.recipe for event in events if isinstance(event, Amended)]
    return recipes.to_dict(recipes.from_dict(amended[-1] if amended else spec["recipe"]))


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


def file_name(name: str) -> str:
    """A recipe's name as a part of a folder's."""
    return "".join(letter if letter.isalnum() or letter in "+-_." else "-" for letter in name).strip("-.")
