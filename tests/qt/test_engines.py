"""Engines by side: started, watched, stopped; a pair beside each other or in turn; on a program that plays vLLM."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_engine

from workbench.engine import together
from workbench.engine.profile import Profile
from workbench.words import Sentence

STARTING = ("print", "INFO Starting to load model x...")
CACHE = ("print", "INFO GPU KV cache size: 46,603 tokens")
REFUSAL = (
    "print",
    "ValueError: To serve at least one request with the models's max seq len (131072), (2.81 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (1.0 GiB). Based on the available memory, the estimated "
    "maximum model length is 30208.",
)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def play(settings, tmp_path):
    """Have the engine's interpreter play these steps."""

    def install(*steps):
        settings.engine_python = str(fake_engine.install(tmp_path, *steps))

    return install


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_an_engine_starts_is_watched_and_stops(engines, play, model, until, told):
    play(STARTING, CACHE, ("answer", "ours"))
    seen = []
    engines.changed.connect(seen.append)
    engines.start("original", Profile(model))
    assert engines.state("original") == "starting"
    assert engines.endpoint("original") is None
    await until(lambda: engines.state("original") == "ready", 20)
    run = engines.run("original")
    assert [phase.name for phase in run.phases] == ["starting", "weights", "kv", "warmup"]
    endpoint = engines.endpoint("original")
    assert endpoint.url == run.ready.url and endpoint.key
    await until(lambda: run.sample is not None)
    assert set(seen) == {"original"} and engines.state("quantized") == "stopped"
    engines.stop("original")
    assert engines.state("original") == "stopping"
    await until(lambda: engines.state("original") == "stopped", 10)
    assert not alive(run.ready.pid)
    assert engines.endpoint("original") is None
    samples = len(run.series.at_s)
    await asyncio.sleep(1.2)
    assert len(run.series.at_s) == samples, "a stopped engine is asked no more"
    assert told == []


async def test_a_death_while_loading_is_a_failure_with_its_cause(engines, play, model, until):
    play(STARTING, ("stderr", 200_000), ("print", "RuntimeError: CUDA out of memory"), ("exit", 1))
    engines.start("quantized", Profile(model))
    await until(lambda: engines.state("quantized") == "failed", 20)
    error = engines.run("quantized").error
    assert "memory ran out" in error.message and error.values["code"] == 1
    assert engines.log_file("quantized").stat().st_size >= 190_000


async def test_a_silent_start_is_told_and_can_be_stopped(engines, play, model, until):
    play(STARTING, ("sleep", 600))
    engines.start("original", Profile(model))
    await until(lambda: len(engines.run("original").phases) == 2, 20)
    await asyncio.sleep(1.1)
    assert engines.silent_s("original") > 1
    engines.stop("original")
    await until(lambda: engines.state("original") == "stopped", 10)


async def test_starting_again_ends_the_first_before(engines, play, model, until):
    play(STARTING, ("answer", "ours"))
    engines.start("original", Profile(model))
    await until(lambda: engines.state("original") == "ready", 20)
    first = engines.run("original").ready.pid
    engines.start("original", Profile(model, context=1024))
    await until(lambda: engines.state("original") == "ready" and engines.run("original").ready.pid != first, 20)
    assert not alive(first)
    assert engines.profile("original").context == 1024
    await engines.stop_all()
    assert engines.state("original") == "stopped"


async def test_a_dead_engine_has_failed_while_its_server_still_ends_and_starts_again(engines, play, model, until):
    play(STARTING, ("deaf",), ("answer", "dying"))
    engines.start("original", Profile(model))
    await until(lambda: engines.state("original") == "ready", 20)
    server = engines.run("original").ready.pid
    os.kill(server, signal.SIGUSR1)
    await until(lambda: engines.state("original") == "failed", 5)
    assert alive(server) and not engines.is_running("original")
    assert "core was killed" in engines.run("original").error.message
    engines.start("original", engines.profile("original"))
    await until(lambda: engines.state("original") == "ready" and engines.run("original").ready.pid != server, 30)
    assert not alive(server)
    await engines.stop_all()


@pytest.fixture
def decided(monkeypatch):
    """Have the arithmetic say this order."""

    def install(order, shares=None):
        chosen = together.Together(order, Sentence("told"), shares)
        monkeypatch.setattr(together, "of_profiles", lambda *_: chosen)

    return install


async def test_a_pair_that_fits_starts_at_once(engines, play, model, until, decided):
    play(STARTING, ("answer", "ours"))
    decided("at once")
    engines.start_pair(Profile(model), Profile(model, name="small"))
    await until(lambda: all(engines.state(side) == "starting" for side in ("original", "quantized")))
    await until(lambda: all(engines.state(side) == "ready" for side in ("original", "quantized")), 20)
    assert engines.pair_note.template == "told"
    assert engines.endpoint("quantized").model == "small"
    assert not engines.can_switch("quantized")
    await engines.stop_all()


async def test_on_a_gpu_the_second_waits_for_the_first_and_has_its_share(engines, play, model, until, decided):
    play(STARTING, ("sleep", 1), ("answer", "ours"))
    decided("in turn", (0.5, 0.25))
    engines.start_pair(Profile(model), Profile(model))
    await until(lambda: engines.state("original") == "starting")
    assert engines.state("quantized") == "waiting"
    await until(lambda: engines.state("original") == "ready", 20)
    await until(lambda: engines.state("quantized") == "ready", 20)
    assert (engines.profile("original").memory_share, engines.profile("quantized").memory_share) == (0.5, 0.25)
    await engines.stop_all()


async def test_the_second_has_its_turn_when_the_first_failed(engines, play, model, until, decided, tmp_path):
    play(STARTING, ("exit", 3))
    decided("in turn", (0.5, 0.25))
    engines.start_pair(Profile(model), Profile(model))
    await until(lambda: engines.state("original") == "failed", 20)
    await until(lambda: engines.state("quantized") == "failed", 20)


async def test_where_only_one_fits_the_turn_is_taken(engines, play, model, until, decided):
    play(STARTING, ("answer", "ours"))
    decided("one at a time")
    engines.start_pair(Profile(model), Profile(model))
    await until(lambda: engines.state("original") == "ready", 20)
    assert engines.state("quantized") == "stopped" and engines.can_switch("quantized")
    await engines.switch("quantized")
    assert engines.state("original") == "stopped"
    await until(lambda: engines.state("quantized") == "ready", 20)
    assert engines.can_switch("original")
    await engines.stop_all()


async def test_a_refused_context_names_one_that_fits(engines, play, model, until):
    play(STARTING, REFUSAL, ("exit", 1))
    engines.start("original", Profile(model))
    await until(lambda: engines.state("original") == "failed", 20)
    assert engines.run("original").error.values["max_length"] <= 30208


async def test_nothing_lives_after_the_window_ended_its_tasks(engines, play, model, until, tasks):
    play(STARTING, ("answer", "ours"))
    engines.start("original", Profile(model))
    await until(lambda: engines.state("original") == "ready", 20)
    pid = engines.run("original").ready.pid
    await tasks.stop_all()
    assert not alive(pid) and len(tasks) == 0


async def test_closing_while_an_engine_loads(engines, play, model, until, tasks):
    play(STARTING, ("sleep", 600))
    engines.start("original", Profile(model))
    await until(lambda: len(engines.run("original").phases) == 2, 20)
    await asyncio.wait_for(tasks.stop_all(), 10)
    assert engines.state("original") == "stopped"
