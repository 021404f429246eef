"""The kept queue: its order, what came of each, and that it survives."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from workbench import cli, jobs, recipe
from workbench.errors import WorkbenchError
from workbench.events import Finished
from workbench.quant_events import QualityMeasured
from workbench.settings import Settings
from workbench.waiting_line import WaitingLine


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def worker(monkeypatch):
    """Stands in for the worker: "best" fails, "slow" never ends, the rest have KL 0.1 and 1 MB; keeps the outputs."""
    asked = []

    async def run(folder, on_event, settings, ask=None):
        spec = jobs.spec_of(folder)
        asked.append(spec["output"])
        name = spec["recipe"]["name"]
        if name == "best":
            raise WorkbenchError("{name} broke.", "Mend it.", name=name)
        if name == "awq":
            await asyncio.sleep(60)
        on_event(QualityMeasured(name, 600, 0.1, 12.0, 11.0, 0.9))
        on_event(Finished(spec["output"], 1_000_000))

    monkeypatch.setattr(jobs, "run", run)
    return asked


def filled(model, place, *names):
    line = WaitingLine()
    for name in names:
        line.add(model, recipe.PRESETS[name], place)
    return line


def run(line, **more):
    asyncio.run(line.run(Settings(), lambda entry, event: None, **more))


def names(line):
    return [entry.recipe.name for entry in line.entries]


def test_it_works_in_order_goes_on_after_a_failure_and_is_kept(tiny, tmp_path, worker):
    run(filled(tiny, tmp_path, "rtn", "best", "int8"))
    again = WaitingLine()
    assert names(again) == ["rtn", "best", "int8"] and not again.waiting
    first, failed, last = (entry.outcome for entry in again.entries)
    assert (first.kl, first.size, last.kl) == (0.1, 1_000_000, 0.1) and str(failed.failure) == "best broke. Mend it."
    assert first.job.is_dir() and again.entries[0].recipe == recipe.PRESETS["rtn"]
    assert "best broke." in again.page().read_text() and again.page().read_text().count("<circle") == 2


def test_names_are_free_on_disk_and_in_the_queue(tiny, tmp_path):
    (tmp_path / f"{tiny.name}-rtn").mkdir()
    line = filled(tiny, tmp_path, "rtn", "rtn")
    assert names(line) == ["rtn-2", "rtn-3"]


def test_what_waits_can_be_moved_and_removed(tiny, tmp_path):
    line = filled(tiny, tmp_path, "rtn", "best", "int8")
    line.move(line.entries[2], -1)
    line.move(line.entries[0], -1)
    assert names(line) == ["rtn", "int8", "best"]
    line.remove(line.entries[0])
    assert names(WaitingLine()) == ["int8", "best"]


def test_what_is_stopped_waits_again(tiny, tmp_path, worker):
    line = filled(tiny, tmp_path, "rtn", "awq")

    async def stopped():
        task = asyncio.ensure_future(line.run(Settings(), lambda entry, event: None))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(worker) == 2:
                break
        assert line.current is line.entries[1] and line.waiting == []
        line.remove(line.entries[1])
        assert len(line.entries) == 2, "not while it is at work"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert [entry.recipe.name for entry in WaitingLine().waiting] == ["awq"] and line.current is None


def test_two_programs_change_it_by_turns_and_one_works(tiny, tmp_path, worker):
    mine, other = WaitingLine(), WaitingLine()
    mine.add(tiny, recipe.PRESETS["awq"], tmp_path)
    assert other.refresh() and not other.refresh()
    other.add(tiny, recipe.PRESETS["rtn"], tmp_path)

    async def both():
        task = asyncio.ensure_future(mine.run(Settings(), lambda entry, event: None))
        await asyncio.sleep(0.05)
        with pytest.raises(WorkbenchError, match="at work"):
            await other.run(Settings(), lambda entry, event: None)
        task.cancel()

    asyncio.run(both())
    mine.refresh()
    assert names(mine) == ["awq", "rtn"]


def test_a_model_that_is_gone_and_a_damaged_file_stop_nothing(tiny, tmp_path, worker, own_home, monkeypatch):
    line = filled(tiny, tmp_path, "rtn")
    line.entries[0].model = tmp_path / "gone"
    run(line)
    failure, kept = line.entries[0].outcome.failure, WaitingLine().entries[0].outcome.failure
    assert str(kept) == str(failure) and str(kept).startswith("There is no folder")
    monkeypatch.setenv("LATHE_LANGUAGE", "zh_CN")
    assert not str(kept).startswith("There is no folder") and str(kept) == str(failure)
    (own_home / "queue.json").write_text(json.dumps([{"model": 1}]))
    assert WaitingLine().entries == []


def lathe(*arguments):
    return CliRunner().invoke(cli.app, ["queue", *map(str, arguments)])


def test_the_command_line_adds_lists_moves_removes_and_starts(tiny, tmp_path, worker):
    added = lathe(tiny, "-o", tmp_path, "--recipe", "rtn", "--recipe", "int8", "--later")
    assert added.exit_code == 0 and "waiting" in added.stdout and worker == []
    assert lathe("--earlier", 2).exit_code == 0 and names(WaitingLine()) == ["int8", "rtn"]
    assert lathe("--remove", 2).exit_code == 0 and names(WaitingLine()) == ["int8"]
    assert isinstance(lathe("--remove", 2).exception, WorkbenchError)
    done = lathe("--start")
    assert done.exit_code == 0 and "0.1000" in done.stdout and "queue.html" in done.stdout.replace("\n", "")
    assert not WaitingLine().waiting
    assert isinstance(lathe(tiny).exception, WorkbenchError)
