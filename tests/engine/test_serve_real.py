"""The real engine under the guard: ready with proof, reachable from this machine only, gone when stopped."""

import json
import shutil
import subprocess
import sys
import time

import httpx
import pytest

from workbench import guard
from workbench.engine import sockets
from workbench.engine.profile import Profile, Speculation, shorter
from workbench.events import EnginePhase, EngineStopped

ALL_FLAGS = (
    "import json; from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser\n"
    "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
    "print('flags', json.dumps([name for each in make_arg_parser(Parser())._actions for name in each.option_strings]))"
)


@pytest.fixture(scope="module")
def model(starter_model, tmp_path_factory):
    """The starter model in a folder whose name has a space, quotes and other letters (H06)."""
    folder = tmp_path_factory.mktemp("serve") / "模型 库" / "ünï 'quote' & co" / "m1"
    folder.mkdir(parents=True)
    for file in starter_model.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="module")
def engine(served, model):
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


def test_every_listening_socket_is_on_loopback_or_a_unix_path(engine):
    listening = sockets.listening(engine.ready.pid)
    assert [each for each in listening if not each.local] == []
    assert len({each.pid for each in listening}) >= 3, "server, engine core and worker all listen to each other"
    assert any(each.pid == engine.ready.pid and engine.ready.url.endswith(each.address) for each in listening)


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
    refused = served(profile)
    assert refused.ready is None
    length = shorter(profile, refused.failed).context
    assert 0 < length <= 2**29 // 46080
    assert refused.failed.values["context"] == 131072


def test_the_flags_read_from_the_source_are_those_of_the_parser():
    from workbench.engine import probe

    told = subprocess.run([sys.executable, "-I", probe.__file__], capture_output=True, text=True, check=True).stdout
    asked = subprocess.run([sys.executable, "-c", ALL_FLAGS], capture_output=True, text=True, check=True).stdout
    flags = next(line for line in asked.splitlines() if line.startswith("flags "))
    known = {flag for flag in json.loads(flags.removeprefix("flags ")) if flag.startswith("--")}
    missing = known - set(json.loads(told)["flags"])
    assert {flag for flag in missing if not flag.startswith("--no-")} - {"--help"} == set()
    assert set(json.loads(told)["flags"]) - known == set()
