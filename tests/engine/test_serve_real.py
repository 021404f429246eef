"""The real engine under the guard: ready with proof, reachable from this machine only, gone when stopped."""

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import in_vllm
import pytest

from workbench import guard
from workbench.core_events import BlockMap, RequestsDone, StepsDone, UsageOnly
from workbench.engine import sockets, tap
from workbench.engine.metrics import read_engine
from workbench.engine.profile import Profile, Speculation, shorter
from workbench.engine_events import EnginePhase, EngineSample, EngineStopped
from workbench.measure import series
from workbench.runs import EngineRun


@pytest.fixture(scope="module")
def model(starter_model, tmp_path_factory):
    """The starter model in a folder whose name has a space, quotes and other letters (H06)."""
    folder = tmp_path_factory.mktemp("serve") / "模型 库" / "ünï 'quote' & co" / "m1"
    folder.mkdir(parents=True)
    for file in starter_model.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="module")
def listeners():
    """Our ends of the taps of this module's engines, in the order of their starts."""
    made = []

    class Kept(tap.Listener):
        def __init__(self, on_event):
            super().__init__(on_event)
            made.append(self)

    original, tap.Listener = tap.Listener, Kept
    yield made
    tap.Listener = original


@pytest.fixture(scope="module")
def engine(served, model, listeners):
    running = served(Profile(model, context=2048, kv_gib=0.5, speculation=Speculation()))
    assert running.ready, running.tail()
    return running


def headers(engine):
    return {"Authorization": f"Bearer {engine.ready.key}"}


def test_the_start_is_told_in_its_phases(engine):
    assert [event.name for event in engine.events if isinstance(event, EnginePhase)] == [
        "starting",
        "weights",
        "kv",
        "warmup",
    ]
    assert 1 < engine.ready.seconds < 300 and 0 < engine.ready.warmup_s < 60
    assert engine.ready.model == "m1"


def test_the_warm_up_is_told_and_counts_in_no_figure(engine):
    until(lambda: heard(engine, StepsDone))
    run = EngineRun()
    for event in [*engine.events, figures(engine)]:
        run.apply(event)
    before = engine.events.index(engine.ready)
    (counted,) = [event for event in engine.events[:before] if isinstance(event, EngineSample)]
    assert counted.prompt_tokens > 0 and counted.generated_tokens > 0 and counted.ttft[1] == 1
    assert (run.sample.prompt_tokens, run.sample.generated_tokens, run.sample.ttft) == (0, 0, (0, 0))
    assert run.sample.drafts in (0, None) and run.sample.prefix_queries == 0
    assert not run.steps.at_s and not run.requests.at_s
    assert run.rates.ttft_s is None and run.rates.acceptance is None


def own_folder(engine):
    """The engine's folder for temporary files."""
    environment = Path(f"/proc/{engine.ready.pid}/environ").read_bytes().split(b"\0")
    (folder,) = (Path(each.partition(b"=")[2].decode()) for each in environment if each.startswith(b"TMPDIR="))
    return folder


def test_every_listening_socket_is_on_loopback_or_a_unix_path_of_its_user(engine):
    listening = sockets.listening(os.getpid())  # the tap's socket is ours
    assert [each for each in listening if not each.local] == []
    ours = [each for each in listening if each.pid != os.getpid()]
    assert len({each.pid for each in ours}) >= 3, "server, engine core and worker all listen to each other"
    assert any(each.pid == engine.ready.pid and engine.ready.url.endswith(each.address) for each in ours)
    paths = {Path(each.address) for each in listening if not each.address.rpartition(":")[2].isdigit()}
    folder = own_folder(engine)
    assert folder / tap.NAME in paths and len(paths) >= 2
    assert {path.parent for path in paths} == {folder} and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_requests_need_the_key(engine):
    url = engine.ready.url + "/v1/models"
    assert httpx.get(url, trust_env=False).status_code == 401
    names = [each["id"] for each in httpx.get(url, headers=headers(engine), trust_env=False).json()["data"]]
    assert names[0] == "m1" and len(names) == 2
    assert engine.ready.key not in engine.log.read_text()


def test_it_answers_and_drafts(engine):
    text = "The quick brown fox jumps over the lazy dog. " * 3
    body = {"model": "m1", "prompt": text, "max_tokens": 16, "temperature": 0}
    reply = httpx.post(
        engine.ready.url + "/v1/completions", json=body, headers=headers(engine), timeout=120, trust_env=False
    )
    assert "brown fox" in reply.json()["choices"][0]["text"]
    metrics = httpx.get(engine.ready.url + "/metrics", trust_env=False).text
    (drafts,) = [line for line in metrics.splitlines() if line.startswith("vllm:spec_decode_num_drafts_total")]
    assert float(drafts.split()[-1]) > 0


def complete(engine, prompt, tokens):
    body = {"model": "m1", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    reply = httpx.post(
        engine.ready.url + "/v1/completions", json=body, headers=headers(engine), timeout=120, trust_env=False
    )
    return reply.raise_for_status().json()["usage"]


def figures(engine):
    return read_engine(httpx.get(engine.ready.url + "/metrics", trust_env=False).text, time.monotonic())


def heard(engine, kind, after_s=0.0):
    told = [event for event in engine.events if isinstance(event, kind)]
    return [each for each in told if (each.at_s if kind is BlockMap else each.at_s[-1]) > after_s]


def until(met, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_the_tap_agrees_with_the_gauge_and_counts_every_token(engine):
    """Three requests of several blocks at once; the gauge tells one moment of each step, the map some of these."""
    time.sleep(0.3)  # what came before has been told
    began_s = time.monotonic()
    prompts = [f"Number {n} is the first word here. " + "one two three four five six seven " * 40 for n in range(3)]
    samples = []
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(complete, engine, prompt, 25 + 15 * n) for n, prompt in enumerate(prompts)]
        while not all(each.done() for each in asked):
            samples.append(figures(engine))
            time.sleep(0.1)
    usages = [each.result() for each in asked]
    until(lambda: heard(engine, BlockMap, began_s)[-1].used == 0)
    maps = heard(engine, BlockMap, began_s)
    for each in maps:
        held, _ = series.blocks(each)
        assert len(held) == each.total - 1 and (held > 0).sum() == each.used
    assert max(each.used for each in maps) >= 6 and maps[-1].cached >= 6
    assert maps[-1].total == samples[-1].kv_blocks and maps[-1].block_size == samples[-1].kv_block_size
    gauge = {round(sample.kv_usage * (maps[-1].total - 1)) for sample in samples}
    assert max(gauge) > 0 and gauge - {0} <= {each.used for each in maps}
    assert figures(engine).kv_usage == 0
    steps = heard(engine, StepsDone, began_s)
    assert sum(sum(each.prefill) for each in steps) == sum(usage["prompt_tokens"] for usage in usages)
    assert sum(sum(each.output) for each in steps) == sum(usage["completion_tokens"] for usage in usages) == 120
    assert max(max(each.requests) for each in steps) == 3
    done = heard(engine, RequestsDone, began_s)
    assert sorted(count for each in done for count in each.tokens) == [25, 40, 55]
    assert all(value > 0 for each in done for value in (*each.queue_s, *each.first_s, *each.between_s))
    assert not [event for event in engine.events if isinstance(event, UsageOnly)]


def test_the_tap_is_private_and_the_engine_does_not_need_it(engine, listeners):
    folder = own_folder(engine)
    assert stat.S_IMODE((folder / tap.NAME).stat().st_mode) == 0o600

    def there(work):
        done = threading.Event()
        engine._loop.call_soon_threadsafe(lambda: (work(), done.set()))
        assert done.wait(5)

    there(listeners[0].close)
    before_s = time.monotonic()
    assert complete(engine, "Nobody listens now", 8)["completion_tokens"] == 8
    assert not heard(engine, StepsDone, before_s)
    (folder / tap.NAME).unlink()
    there(lambda: listeners[0].open(folder))
    time.sleep(1.1)  # the core looks for a listener once a second
    assert complete(engine, "Somebody listens again", 8)["completion_tokens"] == 8
    until(lambda: heard(engine, StepsDone, before_s))
    assert "no map of the KV cache" not in engine.log.read_text()


def test_stopping_leaves_nothing(engine):
    tree = [engine.ready.pid, *guard.descendants(engine.ready.pid)]
    assert len(tree) >= 4
    start = time.monotonic()
    engine.stop()
    assert time.monotonic() - start < 10
    assert [guard.identity(pid) for pid in tree if guard.identity(pid)] == []
    assert isinstance(engine.events[-1], EngineStopped)


def test_a_context_beyond_the_cache_is_refused_with_a_length_that_fits(served, starter_model, tmp_path):
    """H22 with the engine's own figures: 23,040 bytes a token at 16 bit, twice that in float32."""
    folder = tmp_path / "long"
    shutil.copytree(starter_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 131072}))
    profile = Profile(folder, kv_gib=0.5)
    foreseen = served(profile).failed  # before anything of it starts
    # A context among the further arguments is the engine's to judge.
    refused = served(replace(profile, extra=("--max-model-len", "131072")))
    assert refused.ready is None and refused.failed.values["context"] == 131072
    length = shorter(profile, refused.failed).context
    assert 0 < length <= 2**29 // 46080
    assert foreseen.values["max_length"] == length


def test_the_flags_read_from_the_source_are_those_of_the_parser(tmp_path):
    from workbench.engine import probe

    told = subprocess.run([sys.executable, "-I", probe.__file__], capture_output=True, text=True, check=True).stdout
    asked, _ = in_vllm.run("parse_in_vllm.py", tmp_path / "told.json", "[]")
    known = {flag for flag in asked["flags"] if flag.startswith("--")}
    missing = known - set(json.loads(told)["flags"])
    assert {flag for flag in missing if not flag.startswith("--no-")} - {"--help"} == set()
    assert set(json.loads(told)["flags"]) - known == set()
