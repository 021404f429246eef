"""The way into the ledger: asked about, waiting, or started all the same; a job and an engine go through it."""

import asyncio
import json
import os
from dataclasses import replace

import fake_engine
import programs
import pytest

from workbench import admission, job_needs, jobs, ledger, memory
from workbench.admission import Conflict, Offer, Smaller
from workbench.book import Shortage
from workbench.engine import needs as engine_needs
from workbench.engine import serve
from workbench.engine.profile import Profile
from workbench.engine_events import EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Note, Stage
from workbench.memory import Room
from workbench.settings import Settings
from workbench.words import Sentence

GB = 10**9
pytestmark = pytest.mark.usefixtures("machine")
WAITING = Stage("Waiting for memory")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def blocker():
    """An engine that will take 8 of the 10 GB."""
    entry = ledger.new("engine", "blocker", {"cpu": 8 * GB})
    ledger.claim(entry, memory.measure([]))
    return entry


async def until(condition, limit_s=20.0):
    """Look again and again; fails after the limit."""
    end_s = asyncio.get_running_loop().time() + limit_s
    while not condition():
        assert asyncio.get_running_loop().time() < end_s
        await asyncio.sleep(0.02)


class Asked:
    """Answers in turn; keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.conflicts = list(answers), []

    async def __call__(self, conflict):
        self.conflicts.append(conflict)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def placed(ask, needs=None, told=None, smaller=lambda short: None):
    return admission.place(
        "quantize", "m", needs or {"cpu": 4 * GB}, ask, (told if told is not None else []).append, smaller
    )


async def test_what_fits_is_not_asked_about():
    asked = Asked()
    async with placed(asked) as begun:
        begun(os.getpid())
        (entry,) = ledger.entries()
        assert (entry.kind, entry.name, entry.needs, entry.root[0]) == ("quantize", "m", {"cpu": 4 * GB}, os.getpid())
    assert ledger.entries() == [] and asked.conflicts == []


async def test_a_conflict_says_who_and_how_much(blocker):
    asked = Asked("anyway")
    async with placed(asked, smaller=lambda short: Offer(Sentence("less"), short.left)):
        assert len(ledger.entries()) == 2
    (conflict,) = asked.conflicts
    assert str(conflict) == "Quantization of m needs 4.0 GB of memory, and 2.0 GB are left beside: Engine of blocker."
    assert conflict.smaller.value == 2 * GB
    assert [entry.name for entry in ledger.entries()] == ["blocker"]


async def test_refusing_starts_nothing(blocker):
    with pytest.raises(Conflict) as caught:
        async with placed(admission.refuse):
            raise AssertionError
    assert "--wait" in caught.value.hint and "--anyway" in caught.value.hint
    assert ledger.entries() == [blocker]


async def test_waiting_is_told_and_it_starts_by_itself(blocker):
    told, began = [], asyncio.Event()

    async def work():
        async with placed(admission.wait, told=told):
            began.set()

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    assert not began.is_set()
    assert told[0] == WAITING and isinstance(told[1], Note) and "Engine of blocker" in str(told[1].values)
    assert len(told) == 2, "once is enough"
    ledger.release(blocker)
    await asyncio.wait_for(task, 5)
    assert began.is_set()


async def test_waiting_starts_too_when_other_programs_give_memory_back(blocker, machine):
    async def work():
        async with placed(admission.wait):
            pass

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    assert not task.done()
    machine["free"] = 13 * GB
    await asyncio.wait_for(task, 5)


async def test_waiting_can_be_cancelled_and_leaves_nothing(blocker):
    async def work():
        async with placed(admission.wait):
            raise AssertionError

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.entries() == [blocker]


async def test_asked_again_it_looks_again(blocker):
    asked = Asked("again", "anyway")
    async with placed(asked):
        pass
    assert len(asked.conflicts) == 2


async def test_who_is_being_cancelled_here_is_waited_for_without_a_question():
    ended = []

    async def first():
        async with placed(Asked(), {"cpu": 8 * GB}):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                ended.append("first")

    task = asyncio.create_task(first())
    await until(ledger.entries)
    task.cancel()
    async with placed(asked := Asked()):
        assert ended == ["first"]
    assert asked.conflicts == []


async def test_where_nobody_stands_in_the_way_it_is_tried_with_a_warning():
    told = []
    async with placed(admission.refuse, {"cpu": 40 * GB}, told):
        pass
    (note,) = told
    assert note.level == "warning" and "40.0 GB" in note.values["needed"]


# -- a job


def job(tmp_path, body="", **spec):
    """A job folder and settings whose interpreter does `body`."""
    program = programs.write(tmp_path / "python", f"import sys, time\nfolder = sys.argv[3]\n{body}\n")
    return jobs.create("quantize", spec), Settings(engine_python=str(program))


async def test_a_job_is_entered_with_its_need_and_its_process_while_it_runs(tiny, tmp_path):
    folder, settings = job(tmp_path, "time.sleep(60)", **spec_of(tiny, tmp_path))
    task = asyncio.create_task(jobs.run(folder, lambda event: None, settings))
    await until(lambda: ledger.entries() and ledger.entries()[0].root[0])
    found = ledger.entries()
    assert found[0].needs == job_needs.of("quantize", spec_of(tiny, tmp_path))
    assert (found[0].kind, found[0].name) == ("quantize", "tiny")
    ledger.stop(found[0])
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.entries() == []


async def test_a_refused_job_is_a_failure_and_runs_nothing(tiny, tmp_path, machine, blocker):
    machine["free"] = 8 * GB
    folder, settings = job(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')", **spec_of(tiny, tmp_path))
    with pytest.raises(WorkbenchError, match="Quantization of tiny needs"):
        await jobs.run(folder, lambda event: None, settings, admission.refuse)
    assert not (tmp_path / "ran").exists()
    assert [each.state for each in jobs.listing()] == ["failed"]


async def test_a_waiting_job_is_no_interrupted_one(tiny, tmp_path, machine, blocker):
    machine["free"] = 8 * GB
    told = []
    folder, settings = job(tmp_path, "time.sleep(60)", **spec_of(tiny, tmp_path))
    task = asyncio.create_task(jobs.run(folder, told.append, settings, admission.wait))
    await until(lambda: WAITING in told)
    assert [each.state for each in jobs.listing()] == ["running"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [each.state for each in jobs.listing()] == ["cancelled"]


async def test_a_smaller_job_is_the_same_folder_with_another_spec(tiny, tmp_path, machine, blocker):
    machine["free"] = 8 * GB
    spec = spec_of(tiny, tmp_path)
    folder, settings = job(
        tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w').write(open(folder + '/job.json').read())", **spec
    )
    with pytest.raises(Smaller):
        await jobs.run(folder, lambda event: None, settings, Asked(Smaller(Offer(Sentence("less"), spec))))
    changed = spec | {"recipe": spec["recipe"] | {"samples": 64}}
    jobs.change(folder, changed)
    assert jobs.spec_of(folder) == changed
    await jobs.run(folder, lambda event: None, settings, Asked("anyway"))
    assert json.loads((tmp_path / "ran").read_text())["spec"] == changed


def spec_of(model, tmp_path):
    from workbench import recipe

    return {"model": str(model), "output": str(tmp_path / "out"), "recipe": recipe.to_dict(recipe.LAYERED)}


# -- an engine


async def test_an_engine_is_entered_with_its_need_while_it_runs(tiny, tmp_path):
    python = fake_engine.install(tmp_path, ("answer", "ours"))
    seen = []
    profile = Profile(tiny)
    task = asyncio.create_task(serve.serve(profile, Settings(engine_python=str(python)), seen.append, tmp_path / "log"))
    await until(lambda: any(isinstance(event, EngineReady) for event in seen))
    (entry,) = ledger.entries()
    assert entry.kind == "engine" and entry.needs == engine_needs.of(profile) and entry.root[0]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.entries() == []


async def test_a_waiting_engine_starts_nothing_before_its_turn(tiny, tmp_path, machine, blocker):
    machine["free"] = 9 * GB
    python = fake_engine.install(tmp_path, ("answer", "ours"))
    seen = []
    settings = Settings(engine_python=str(python))
    task = asyncio.create_task(serve.serve(Profile(tiny), settings, seen.append, tmp_path / "log", ask=admission.wait))
    await until(lambda: WAITING in seen)
    await asyncio.sleep(0.1)
    assert not (tmp_path / "started.json").exists()
    ledger.release(blocker)
    await until(lambda: any(isinstance(event, EngineReady) for event in seen))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_smaller_engine_fits_into_what_is_left_and_can_still_talk(tiny, monkeypatch):
    profile = Profile(tiny)
    size = engine_needs.of(profile)["cpu"]
    short = Shortage("cpu", Room("CPU", 24 * GB, 0), size, {"cpu": size - GB // 2}, ())
    offer = engine_needs.smaller(profile, "", short)
    assert engine_needs.of(offer.value)["cpu"] <= size - GB // 2
    assert offer.value.kv_gib < 1 and offer.value.context == 128, "all that the model has"
    too_little = replace(short, left_on={"cpu": 1000})
    assert engine_needs.smaller(profile, "", too_little) is None


def test_a_smaller_engine_on_a_gpu_takes_a_share_of_what_is_left(tiny, monkeypatch):
    from workbench.catalog.devices import Device

    gpu = Device("H200", "gpu", 140 * GB, 60 * GB)
    monkeypatch.setattr(engine_needs, "devices", lambda: [gpu])
    profile = Profile(tiny)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert engine_needs.of(profile) == {"gpu0": int(140 * GB * 0.92) + engine_needs.CUDA}
    fixed = engine_needs.of(replace(profile, kv_gib=1.0))["gpu0"]
    assert fixed > 2**30 + engine_needs.CUDA
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert list(engine_needs.of(profile)) == ["gpu3"]
    assert list(engine_needs.of(replace(profile, tensor_parallel=2), "", "2,0")) == ["gpu2", "gpu0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1f0c")
    assert list(engine_needs.of(profile)) == ["gpu0"]
    short = Shortage("gpu0", Room("H200", 140 * GB, 60 * GB), 129 * GB, {"gpu0": 60 * GB}, ())
    offer = engine_needs.smaller(profile, "", short)
    assert offer.value.memory_share == 0.42 and engine_needs.of(offer.value)["gpu0"] <= 60 * GB
    tight = replace(short, left_on={"gpu0": int(0.42 * 140 * GB)})
    assert engine_needs.smaller(profile, "", tight).value.memory_share == 0.41, "CUDA takes its part as well"


def test_a_model_that_cannot_be_read_states_nothing_and_stops_nobody(tmp_path):
    assert engine_needs.of(Profile(tmp_path / "nowhere")) == {}
    assert job_needs.of("quantize", {"model": str(tmp_path)}) == {}
    assert job_needs.of("histogram", {}) is None
