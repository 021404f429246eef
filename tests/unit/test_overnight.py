"""Several recipes in a row: a failure does not stop the rest, and the page shows all of them."""

import asyncio
import json

import pytest

from workbench import jobs, overnight, recipe, scatter
from workbench.errors import WorkbenchError
from workbench.events import Finished
from workbench.quant_events import QualityMeasured
from workbench.settings import Settings


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def worker(monkeypatch):
    """Stands in for the worker: KL 0.1 and 1 MB for "rtn", a failure for "best"; keeps what was asked for."""
    asked = []

    async def run(folder, on_event, settings, ask=None):
        spec = jobs.spec_of(folder)
        asked.append(spec)
        name = spec["recipe"]["name"]
        if name == "best":
            raise WorkbenchError("{name} broke.", "Mend it.", name=name)
        on_event(QualityMeasured(name, 600, 0.1, 12.0, 11.0, 0.9))
        on_event(Finished(spec["output"], 1_000_000))

    monkeypatch.setattr(jobs, "run", run)
    return asked


def queue(model, names, directory):
    return asyncio.run(
        overnight.run(model, [recipe.load(name) for name in names], directory, Settings(), lambda name, event: None)
    )


def test_the_queue_goes_on_after_a_failure(tiny, tmp_path, worker):
    outcomes = queue(tiny, ["best", "rtn", "rtn"], tmp_path / "night")
    assert [outcome.name for outcome in outcomes] == ["best", "rtn", "rtn-2"]
    assert [bool(outcome.failure) for outcome in outcomes] == [True, False, False]
    assert str(outcomes[0].failure) == "best broke. Mend it."
    assert outcomes[1].kl == 0.1 and outcomes[1].size == 1_000_000
    assert [spec["output"] for spec in worker] == [
        str(tmp_path / "night" / f"{tiny.name}-{name}") for name in ("best", "rtn", "rtn-2")
    ]
    page = (tmp_path / "night" / overnight.PAGE).read_text()
    assert "best broke." in page and page.count("<circle") == 2 and "0.1000" in page


def test_a_recipe_that_cannot_run_starts_nothing(tiny, tmp_path, worker):
    torn = recipe.with_rules(recipe.PRESETS["rtn"], ("*.layers.0.self_attn.q_proj",), recipe.Choice(bits=8))
    file = tmp_path / "torn.json"
    file.write_text(json.dumps(recipe.to_dict(torn) | {"name": ""}))
    outcomes = queue(tiny, [str(file), "rtn"], tmp_path / "night")
    assert "`lathe plan`" in str(outcomes[0].failure) and outcomes[0].job is None and not outcomes[1].failure
    assert len(worker) == 1


def test_the_line_joins_what_nothing_beats():
    small, good, beaten = scatter.Point("a", 1, 0.5), scatter.Point("b", 2, 0.1), scatter.Point("c", 3, 0.2)
    failed = scatter.Point("d", 0.5, 0.01, crossed=True)
    assert scatter.frontier([beaten, good, small, failed]) == [small, good]
    drawn = scatter.svg([small, good, beaten, failed], "size", "KL <nats>")
    assert drawn.count("<circle") == 4 and drawn.count('class="failed"') == 1 and "&lt;nats&gt;" in drawn
    assert scatter.svg([], "x", "y") == "" and "<circle" in scatter.svg([small], "x", "y")


@pytest.mark.parametrize(("low", "high"), [(2.014, 2.221), (99, 184), (0.4, 5200.0), (114.2, 114.7)])
def test_the_axis_has_round_sizes(low, high):
    marks = scatter.even(low, high)
    assert 3 <= len(marks) <= 7 and low <= marks[0] and marks[-1] <= high
    step = marks[1] - marks[0]
    assert f"{step:.0e}"[0] in "125" and all(abs(mark / step - round(mark / step)) < 1e-6 for mark in marks)
