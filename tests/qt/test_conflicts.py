"""Memory that others hold, in the window: the question, waiting, starting by itself, who holds what, and unloading."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_engine
import tiny as maker

from ui import language
from ui.conflict_box import Conflicts
from ui.engines import Engines
from ui.ledger_box import LedgerBox
from ui.quantize.job_run import JobRun
from ui.serve_page import ServePage
from workbench import job_needs, jobs, ledger, memory, recipe
from workbench.catalog.folder import inspect
from workbench.engine import idle, needs
from workbench.engine.profile import Profile
from workbench.engine_events import EngineSample

GB = 10**9
pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def blocker():
    """An engine of another Lathe that will take 9 of the 10 GB."""
    entry = ledger.new("engine", "blocker", {"cpu": 9 * GB})
    assert ledger.claim(entry, memory.measure([]))[0]
    ledger._own.pop(entry.id, None)
    return entry


@pytest.fixture
def conflicts(tasks, qapp):
    asking = Conflicts(None)
    tasks.ask = asking.ask
    return asking


@pytest.fixture
def engines(settings, tasks, tmp_path):
    settings.engine_python = str(fake_engine.install(tmp_path, ("answer", "ours")))
    return Engines(settings, tasks)


@pytest.fixture
def profile(tmp_path):
    return Profile(maker.write(tmp_path / "model"))


async def test_an_engine_waits_is_seen_to_wait_and_starts_by_itself(
    engines, profile, conflicts, blocker, until, tmp_path
):
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    box = conflicts.box
    assert "Engine of model does not fit beside what runs" in box.sentence.text()
    assert (
        "1.0 GB of CPU memory are left" in box.figures.text()
        and "Engine of blocker" in box.stops[0].accessibleDescription()
    )
    assert engines.state("original") == "starting"
    box.wait.click()
    await until(lambda: engines.state("original") == "waiting")
    assert conflicts.box is None and not (tmp_path / "started.json").exists()
    assert "Engine of blocker" in str(engines.run("original").notes[-1].values)
    ledger.release(blocker)
    await until(lambda: engines.state("original") == "ready", 20)
    await engines.stop_all()
    assert ledger.entries() == []


async def test_waiting_is_cancelled_like_a_start(engines, profile, conflicts, blocker, until):
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    conflicts.box.wait.click()
    await until(lambda: engines.state("original") == "waiting")
    engines.stop("original")
    await until(lambda: engines.state("original") == "stopped")
    assert ledger.entries() == [blocker]


async def test_start_nothing_and_a_stop_while_asked_leave_nothing_open(
    engines, profile, conflicts, blocker, until, told
):
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    conflicts.box.reject()
    await until(lambda: engines.state("original") == "stopped")
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    engines.stop("original")
    await until(lambda: engines.state("original") == "stopped")
    assert conflicts.box is None and told == [] and ledger.entries() == [blocker]


async def test_a_smaller_engine_is_started_and_is_the_profile_from_then_on(
    engines, profile, conflicts, blocker, until, machine
):
    machine["free"] = 9 * GB + needs.of(profile)["cpu"] - GB // 2
    reduced = []
    engines.reduced.connect(reduced.append)
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    conflicts.box.smaller.click()
    await until(lambda: engines.state("original") == "ready", 20)
    assert reduced == ["original"] and engines.profile("original").kv_gib < 1
    await engines.stop_all()


async def test_the_form_shows_the_smaller_profile_and_the_foot_who_waits(
    settings, tasks, notices, engines, profile, conflicts, blocker, until, machine
):
    page = ServePage(settings, tasks, notices, engines)
    page.show_model("original", inspect(profile.model))
    machine["free"] = 9 * GB + needs.of(profile)["cpu"] - GB // 2
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    conflicts.box.smaller.click()
    await until(lambda: engines.state("original") == "ready", 20)
    assert page.forms["original"].profile().kv_gib == engines.profile("original").kv_gib
    machine["free"] = 9 * GB
    engines.start("original", profile)
    await until(lambda: conflicts.box, 10)
    conflicts.box.wait.click()
    await until(lambda: engines.state("original") == "waiting")
    assert [str(status.sentence) for status in page.statuses()] == ["model waits for its turn"]
    await engines.stop_all()


async def test_stop_and_start_ends_the_other_engine_first(engines, profile, conflicts, until, machine):
    machine["free"] = needs.of(profile)["cpu"] + GB
    engines.start("original", profile)
    await until(lambda: engines.state("original") == "ready", 20)
    engines.start("quantized", profile)
    await until(lambda: conflicts.box)
    conflicts.box.stops[0].click()
    await until(lambda: engines.state("original") == "stopped", 10)
    await until(lambda: engines.state("quantized") == "ready", 20)
    await engines.stop_all()


async def test_start_anyway_starts_beside(engines, profile, conflicts, blocker, until):
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    conflicts.box.anyway.click()
    await until(lambda: engines.state("original") == "ready", 20)
    assert len(ledger.entries()) == 2
    await engines.stop_all()


async def test_two_that_do_not_fit_are_asked_about_one_after_the_other(engines, profile, conflicts, blocker, until):
    engines.start("original", profile)
    engines.start("quantized", profile)
    await until(lambda: conflicts.box)
    first = conflicts.box
    first.wait.click()
    await until(lambda: conflicts.box and conflicts.box is not first)
    conflicts.box.reject()
    await until(lambda: sorted(map(engines.state, ("original", "quantized"))) == ["stopped", "waiting"])
    await engines.stop_all()


async def test_a_smaller_quantization_is_the_same_job_with_fewer_samples(
    settings, tasks, conflicts, blocker, until, machine, tmp_path, monkeypatch
):
    begun = []

    async def played(command, **_):
        begun.append(jobs.spec_of(Path(command[-1])))

    monkeypatch.setattr(jobs.process, "run", played)
    spec = {
        "model": str(maker.write(tmp_path / "model")), "output": str(tmp_path / "out"), "held_tokens": 0,
        "recipe": recipe.to_dict(replace(recipe.LAYERED, samples=4096)),
    }  # fmt: skip
    machine["free"] = 9 * GB + job_needs.of("quantize", spec)["cpu"] - GB // 10
    job = JobRun(settings, tasks)
    job.begin(spec)
    tasks.start(job.work())
    await until(lambda: conflicts.box)
    conflicts.box.smaller.click()
    await until(lambda: begun)
    assert begun[0]["recipe"]["samples"] < 4096
    assert job_needs.of("quantize", begun[0])["cpu"] <= machine["free"] - 9 * GB


async def test_the_words_of_the_question_follow_the_language(conflicts, blocker, tasks, engines, profile, until):
    engines.start("original", profile)
    await until(lambda: conflicts.box)
    language.choose("zh_CN")
    assert conflicts.box.wait.text() == "等待" and "放不下" in conflicts.box.sentence.text()
    conflicts.box.reject()
    await until(lambda: engines.state("original") == "stopped")


async def test_who_holds_memory_is_listed_and_can_be_ended(tasks, qtbot, blocker, until, monkeypatch):
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    box = LedgerBox(tasks, window)
    box.open_below(window)
    await until(lambda: box.rows)
    texts = [label.text() for label in box.table.findChildren(type(box.rooms))]
    assert "Engine of blocker" in texts and "9.0 GB" in texts
    assert "1.0 GB left" in box.rooms.text()
    ended = []
    monkeypatch.setattr(ledger, "stop", ended.append)
    stop = box.rows[blocker.id].stop
    assert stop.accessibleName() == "Stop Engine of blocker"
    stop.click()
    assert [entry.name for entry in ended] == ["blocker"] and not box.isVisible()
    ledger.release(blocker)
    box.open_below(window)
    await until(lambda: box.empty.isVisible())
    box.close()


# -- unloading


def sample(at_s, running=0.0, waiting=0.0, tokens=5.0):
    return EngineSample(at_s, running, waiting, prompt_tokens=tokens, generated_tokens=tokens)


def test_idle_is_without_requests_and_without_tokens():
    watch = idle.Idle()
    assert watch.seconds(sample(0)) == 0
    assert watch.seconds(sample(30)) == 30
    assert watch.seconds(sample(31, running=1.0)) == 0
    assert watch.seconds(sample(32, waiting=1.0)) == 0
    assert watch.seconds(sample(40)) == 8
    assert watch.seconds(sample(41, tokens=9.0)) == 0, "one came and went between two polls"
    assert watch.seconds(sample(50, tokens=9.0)) == 9
    assert watch.seconds(EngineSample(51)) == 0, "no answer may be much work"


def test_several_are_idle_when_all_are():
    watch = idle.Idle()
    assert watch.seconds(sample(0), "prefill") == 0 and watch.seconds(sample(5), "decode") == 0
    assert watch.seconds(sample(20), "prefill") == 15 and watch.seconds(sample(20), "decode") == 15
    assert watch.seconds(sample(30, running=1.0), "decode") == 0 and watch.seconds(sample(31), "prefill") == 1
    assert watch.seconds(sample(40), "decode") == 10


PAGE = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 7\n"


@pytest.mark.parametrize("minutes", [0, 1])
async def test_an_idle_engine_is_unloaded_only_where_it_is_wanted(
    minutes, settings, tasks, tmp_path, profile, until, monkeypatch
):
    monkeypatch.setattr(idle.Idle, "seconds", lambda self, sample, leg: 60.0 if sample.running == 0 else 0.0)
    settings.engine_python = str(fake_engine.install(tmp_path, ("answer", "ours", [PAGE])))
    settings.unload_idle = minutes
    engines = Engines(settings, tasks)
    unloaded = []
    engines.unloaded.connect(lambda *values: unloaded.append(values))
    engines.start("original", profile)
    await until(lambda: engines.state("original") == "ready", 20)
    if minutes:
        await until(lambda: engines.state("original") == "stopped", 20)
        assert unloaded == [("original", 1)]
        engines.start("original", engines.profile("original"))
        await until(lambda: engines.state("original") == "ready", 20)
    else:
        await until(lambda: len(engines.run("original").series.at_s) > 1)
        await asyncio.sleep(0.1)
        assert engines.state("original") == "ready" and unloaded == []
    await engines.stop_all()
