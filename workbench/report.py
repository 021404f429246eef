"""The demo's report: one HTML page for people and the same figures as JSON for programs."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from workbench import figures, paths
from workbench.words import language, say


def write_report(folder: Path, report: dict[str, Any]) -> Path:
    """Write report.json and report.html into `folder`; the path of the page."""
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "report.json").write_text(text, encoding="utf-8")
    page = folder / "report.html"
    page.write_text(html(report), encoding="utf-8")
    return page


def html(report: dict[str, Any]) -> str:
    """The page; everything that comes from a model or a file is escaped."""
    environment = Environment(
        loader=FileSystemLoader(paths.RESOURCES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(say=say, figures=figures, language=language())
    return environment.get_template("report.html.j2").render(report=report)
