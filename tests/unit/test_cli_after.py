"""What the command line does with quantizations that run or have ended."""

import json
import os

import psutil
import pytest
from typer.testing import CliRunner

from workbench import amend, cli, jobs, recipe
from workbench.errors import WorkbenchError
from workbench.events import Failed, Note, encode
from workbench.quant_events import Checked, ModuleStarted


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def job(tiny, tmp_path):
    return jobs.create(
        "quantize",
        {"model": str(tiny), "output": str(tmp_path / "out"), "recipe": recipe.to_dict(recipe.PRESETS["layered"])},
    )


def lathe(*arguments):
    return CliRunner().invoke(cli.app, arguments)


def running(job, *events):
    (job / "pid").write_text(f"{os.getpid()} {psutil.Process().create_time()}")
    (job / "events.jsonl").write_text("".join(encode(event) + "\n" for event in events))


def test_a_change_goes_to_the_running_job_and_keeps_its_calibration(job):
    running(job, ModuleStarted("model.layers.0.self_attn.q_proj", 0))
    done = lathe("amend", job.name, "--recipe", "rtn")
    assert done.exit_code == 0, done.exception
    (line,) = amend.read(job)
    assert line.from_block == 1 and line.recipe.mlp.method == "rtn"
    assert line.recipe.samples == recipe.PRESETS["layered"].samples
    methods = {planned.linear.block: planned.choice.method for planned in amend.current(job).linears}
    assert methods[0] != "rtn" and methods[1] == "rtn"


def test_a_change_needs_a_job_that_runs_and_a_recipe(job):
    running(job, Failed("It broke."))
    assert "has ended" in str(lathe("amend", job.name, "--recipe", "rtn").exception)
    assert "No recipe" in str(lathe("amend", job.name).exception)
    wrong = lathe("amend", "nothing", "--recipe", "rtn").exception
    assert isinstance(wrong, WorkbenchError) and "nothing" in str(wrong)


@pytest.mark.parametrize("command", ["report", "resume", "amend"])
def test_without_any_job_there_is_none_to_name(command):
    found = lathe(command, *(["--recipe", "rtn"] if command == "amend" else [])).exception
    assert str(found) == "Nothing was quantized here yet." and "lathe quantize" in found.hint


def test_half_a_line_is_left_for_later(job):
    line = json.dumps({"from_block": 1, "recipe": recipe.to_dict(recipe.PRESETS["rtn"])})
    (job / "amendments.jsonl").write_text(line + "\n" + line[:40])
    assert len(list(amend.read(job))) == 1
    (job / "amendments.jsonl").write_text(line + "\n" + line + "\n")
    assert len(list(amend.read(job))) == 2


def test_a_job_that_came_to_no_end_is_reported_from_its_events(job):
    check = Checked("The size is as predicted", False, "{size} bytes", {"size": 7})
    note = Note("A {thing} <b>.", {"thing": "note"})
    running(job, note, check, Failed("{name} broke.", "Mend it.", {"name": "<script>"}))
    done = lathe("report")
    page = done.stdout.replace("\n", "")
    assert done.exit_code == 0 and page == str(job / "report.html")
    text = (job / "report.html").read_text()
    for part in ("&lt;script&gt; broke.", "Mend it.", "7 bytes", "A note &lt;b&gt;.", "✗"):
        assert part in text
    assert json.loads((job / "report.json").read_text())["recipe"] == recipe.to_dict(recipe.PRESETS["layered"])


def test_going_on_asks_for_the_same_with_its_changes(job, monkeypatch):
    asked = []

    async def run(folder, on_event, settings, ask=None):
        asked.append(folder)

    monkeypatch.setattr(jobs, "run", run)
    running(job)
    lathe("amend", job.name, "--recipe", "rtn")
    assert lathe("resume", str(job)).exit_code == 0
    (again,) = asked
    assert again != job and jobs.spec_of(again) == jobs.spec_of(job)
    assert list(amend.read(again)) == list(amend.read(job))
