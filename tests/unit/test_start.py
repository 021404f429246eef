"""The phases of a start: told apart by what vLLM prints, timed, foretold."""

import json
from pathlib import Path

import pytest

from workbench import paths
from workbench.engine import start, starts_kept
from workbench.engine.profile import Profile
from workbench.engine.start import Course, Phase, durations, left_s, outlook, phases, readiness
from workbench.engine_events import EnginePhase, EngineReady, StartExpected
from workbench.events import Failed
from workbench.runs import EngineRun
from workbench.terminal import JobProgress

HEALTHY = Path(__file__).parent / "data" / "healthy_engine.log"
READY = EngineReady("http://127.0.0.1:1", "k", "m", 7, 30.0, 2.5)
GPU = (  # the lines of vLLM 0.32's source that a GPU's start adds, in their order
    "(Worker pid=1) INFO [gpu_model_runner.py:5053] Starting to load model /m...",
    "(Worker pid=1) INFO [gpu_model_runner.py:5150] Model loading took 0.25 GiB memory and 1.100000 seconds",
    "(Worker pid=1) INFO [backends.py:1105] Using cache directory: /c/rank_0_0/backbone for vLLM's torch.compile",
    "(Worker pid=1) INFO [backends.py:1167] Dynamo bytecode transform time: 4.20 s",
    "(EngineCore pid=1) INFO [kv_cache_utils.py:2327] GPU KV cache size: 5,000,000 tokens",
    "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]",
    "Capturing CUDA graphs (decode, FULL):   0%|          | 0/35 [00:00<?, ?it/s]",
)
NEWER = (  # the same by the newer model runner of 0.26, as an H200 printed them
    "(EngineCore pid=2759) INFO 11-30 03:41:39 [model_runner.py:284] Loading model from scratch...",
    "(EngineCore pid=2759) INFO 11-30 03:41:41 [model_runner.py:305] Model loading took 14.29 GiB and 2.123698 seconds",
    "(EngineCore pid=2759) INFO 11-30 03:41:50 [backends.py:1094] Using cache directory: /c/torch_compile_cache/"
    "1e2a8272b4/rank_0_0/backbone for vLLM's torch.compile",
    "(EngineCore pid=2759) INFO 11-30 03:42:06 [gpu_worker.py:560] Available KV cache memory: 112.98 GiB",
    "(EngineCore pid=2759) Capturing CUDA graphs (PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


def test_a_real_log_goes_through_its_phases_once():
    course = Course()
    lines = HEALTHY.read_text(encoding="utf-8").splitlines()
    assert [name for line in lines if (name := course.entered(line))] == ["weights", "kv"]


@pytest.mark.parametrize("printed", [GPU, NEWER])
def test_a_gpu_also_compiles_and_captures_graphs(printed):
    course = Course()
    assert [name for line in printed if (name := course.entered(line))] == ["weights", "compile", "kv", "graphs"]
    assert set(start.NAMES) == {"starting", *(name for name, _ in start.ENTRIES), "warmup"}


def started(*seconds: float, expected: dict[str, float]) -> EngineRun:
    run = EngineRun()
    run.apply(StartExpected(expected))
    for name, at_s in zip(("starting", "weights", "kv", "warmup"), seconds, strict=False):
        run.apply(EnginePhase(name, at_s))
    return run


def test_what_comes_is_foretold_while_it_starts():
    expected = {"starting": 20.0, "weights": 5.0, "kv": 2.0, "warmup": 3.0}
    run = started(100.0, 118.0, expected=expected)
    assert phases(run, 121.0) == [
        Phase("starting", 18.0, False, 20.0),
        Phase("weights", 3.0, True, 5.0),
        Phase("kv", None, False, 2.0),
        Phase("warmup", None, False, 3.0),
    ]
    assert left_s(run, 121.0) == 2 + 2 + 3
    assert left_s(run, 140.0) == 5, "a phase that takes longer is over any moment"
    run.apply(Failed("x"))
    assert [each.name for each in phases(run, 125.0)] == ["starting", "weights"], "nothing comes after a failure"


def test_a_first_start_expects_nothing():
    run = started(100.0, 118.0, expected={})
    assert phases(run, 121.0) == [Phase("starting", 18.0), Phase("weights", 3.0, True)]
    assert left_s(run, 121.0) is None


def test_what_is_said_while_it_starts_and_when_it_is_ready():
    first = started(100.0, expected={})
    assert outlook(first, 103.0, 3.0) is None
    assert str(outlook(first, 140.0, 34.2)) == "Still loading, no output for 34 s."
    known = started(100.0, expected={"starting": 20.0, "weights": 5.0})
    assert str(outlook(known, 112.0, 12.0)) == "About 13 s left, by earlier starts."
    known.apply(EnginePhase("weights", 118.0))
    assert str(outlook(known, 124.0, 1.0)) == "It takes longer than earlier starts, which took 25 s."
    assert str(outlook(known, 150.0, 32.0)) == "Still loading, no output for 32 s."
    assert str(readiness(READY)) == "Ready after 30.0 s, warmed up after 32.5 s."
    assert str(readiness(EngineReady("u", "k", "m", 7, 30.0))) == "Ready after 30.0 s."


def test_a_finished_start_has_its_durations():
    run = started(100.0, 118.0, 123.0, 130.0, expected={})
    run.apply(READY)
    assert [each.seconds for each in phases(run, 999.0)] == [18.0, 5.0, 7.0, 2.5]
    assert durations(run.phases, READY) == {"starting": 18.0, "weights": 5.0, "kv": 7.0, "warmup": 2.5}
    failed = EngineReady("http://127.0.0.1:1", "k", "m", 7, 30.0)
    assert "warmup" not in durations(run.phases, failed)


def test_the_middle_of_the_last_starts_is_expected():
    profile = Profile(Path("/models/m"))
    assert starts_kept.expected(profile, "python") == {}
    for seconds in (900.0, 10.0, 12.0, 11.0, 10.0, 90.0):  # the first is forgotten by the sixth
        starts_kept.remember(profile, "python", {"weights": seconds})
    starts_kept.remember(profile, "python", {"weights": 12.0, "warmup": 3.0})
    assert starts_kept.expected(profile, "python") == {"weights": 12.0, "warmup": 3.0}
    assert starts_kept.expected(profile, "another") == {}
    assert starts_kept.expected(Profile(Path("/models/m"), context=1), "python") == {}
    assert starts_kept.expected(Profile(Path("/models/m"), memory_share=0.31, port=1), "python") != {}


@pytest.mark.parametrize("text", ["{", "[]", '{"starts": [1]}', '{"starts": [{"kv": "x"}]}', '{"starts": 3}'])
def test_a_damaged_file_counts_as_none(text):
    profile = Profile(Path("/models/m"))
    starts_kept.remember(profile, "python", {"kv": 1.0})
    (file,) = (paths.home() / "starts").iterdir()
    file.write_text(text)
    assert starts_kept.expected(profile, "python") == {}
    starts_kept.remember(profile, "python", {"kv": 2.0})
    assert json.loads(file.read_text())["starts"] == [{"kv": 2.0}]


def test_a_disk_that_takes_nothing_is_no_reason_to_fail(tmp_path):
    (paths.home() / "starts").write_text("in the way")
    starts_kept.remember(Profile(Path("/models/m")), "python", {"kv": 1.0})
    assert starts_kept.expected(Profile(Path("/models/m")), "python") == {}


def test_the_terminal_says_what_is_usual_and_both_times(capsys):
    with JobProgress() as progress:
        progress(StartExpected({"weights": 5.0}))
        progress(EnginePhase("weights", 1.0))
        assert "Weights (usually 5.00 s)" in progress.doing
        progress(EnginePhase("kv", 6.0))
        assert progress.doing == "KV cache", "where no earlier start is known nothing is usual"
        progress(READY)
    told = capsys.readouterr().err
    assert "m answers at http://127.0.0.1:1/v1." in told
    assert "Ready after 30.0 s, warmed up after 32.5 s." in told
