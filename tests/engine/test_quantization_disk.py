"""A full disk, a cancel and a killed run leave an earlier result as it was, and nothing else (H18)."""

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from quantization_models import TEXT, quantized, write_model

from workbench import recipe
from workbench.errors import WorkbenchError
from workbench.events import decode
from workbench.quant_events import ModuleDone
from workbench.quantization import checkpoint, pipeline
from workbench.quantization import place as places
from workbench.quantization.shard import Shard


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk")
    quantized(write_model(folder / "model"), folder / "out", "rtn")
    return folder


@pytest.fixture
def place(template, tmp_path):
    """A model, and a good earlier result under the output's name."""
    shutil.copytree(template, tmp_path / "place")
    return tmp_path / "place"


def hashes(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def job(place, chosen=recipe.LAYERED, **spec):
    """A job folder as the window makes it."""
    text = place / "text.txt"
    text.write_text(TEXT * 400)
    folder = place / "job"
    folder.mkdir()
    spec = {
        "model": str(place / "model"), "output": str(place / "out"), "held_tokens": 0, "replace": True,
        "recipe": recipe.to_dict(chosen) | {"calibration_file": str(text)},
    } | spec  # fmt: skip
    (folder / "job.json").write_text(json.dumps({"kind": "quantize", "spec": spec, "created": 0.0}))
    return folder


def events_of(folder):
    return [decode(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_a_limit_on_file_size(place):
    before = hashes(place / "out")
    folder = job(place)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    code = subprocess.run(
        [sys.executable, "-m", "workbench.worker", str(folder)], preexec_fn=limit, capture_output=True, timeout=120
    ).returncode
    last = events_of(folder)[-1]
    assert code == 1 and "larger than" in last.message and last.values["free"] > 0
    assert hashes(place / "out") == before
    assert not [name for name in os.listdir(place) if "partial" in name]


def test_a_disk_that_fills_up_at_the_second_shard(place, monkeypatch):
    before, calls, real = hashes(place / "out"), [], Shard.close

    def close(shard):
        calls.append(shard.path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(shard)

    monkeypatch.setattr(Shard, "close", close)
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 40_000)
    with pytest.raises(WorkbenchError, match=r"full: \d+ bytes are free"):
        quantized(place / "model", place / "out", replace=True)
    assert len(calls) == 2 and hashes(place / "out") == before
    assert not [name for name in os.listdir(place) if "partial" in name]


def test_too_little_space_is_told_before_the_start(place, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(WorkbenchError) as caught:
        quantized(place / "model", place / "new")
    assert caught.value.values["free"] == 1000 and caught.value.values["needed"] > 100_000
    assert "1000" in str(caught.value) and str(caught.value.values["needed"]) in str(caught.value)
    assert not (place / "new").exists()


def test_cancel_halfway(place):
    before = hashes(place / "out")
    folder = job(place, held_tokens=0)
    worker = subprocess.Popen(
        [sys.executable, "-m", "workbench.worker", str(folder)], stdout=subprocess.PIPE, text=True
    )
    for line in worker.stdout:
        if isinstance(decode(line), ModuleDone):
            break
    assert any("partial" in name for name in os.listdir(place))
    worker.send_signal(signal.SIGTERM)
    worker.wait(40)  # on a busy machine; in the application the guard kills it after 1.2 s and the job sweeps
    worker.stdout.close()
    assert hashes(place / "out") == before
    assert not [name for name in os.listdir(place) if "partial" in name]


def test_a_replaced_result_is_whole(place):
    before = hashes(place / "out")
    quantized(place / "model", place / "out", replace=True)
    assert hashes(place / "out").keys() == before.keys() and hashes(place / "out") != before
    assert not [name for name in os.listdir(place) if "partial" in name]


def test_a_name_that_is_taken_is_not_overwritten_unasked(place):
    before = hashes(place / "out")
    with pytest.raises(WorkbenchError, match="earlier result"):
        quantized(place / "model", place / "out")
    (place / "letters").mkdir()
    (place / "letters/mine.txt").write_text("dear")
    with pytest.raises(WorkbenchError, match="holds no quantized model"):
        quantized(place / "model", place / "letters", replace=True)
    assert hashes(place / "out") == before and (place / "letters/mine.txt").read_text() == "dear"


def test_what_a_killed_run_left_is_cleared_and_what_lives_is_not(place):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = place / f".out.partial-{ended.pid}", place / f".out.partial-{os.getppid()}"
    dead.mkdir(), alive.mkdir()
    (dead / "model.safetensors").write_text("half")
    places.purge(place / "out")
    assert not dead.exists() and alive.exists()


def test_a_result_that_was_set_aside_comes_back(place):
    """Killed between the two renames of a replacement."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    before = hashes(place / "out")
    (place / "out").rename(place / f".out.partial-{ended.pid}.old")
    places.purge(place / "out")
    assert hashes(place / "out") == before


def test_several_shards_have_an_index(place, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 40_000)
    quantized(place / "model", place / "out", "rtn", replace=True)
    index = json.loads((place / "out/model.safetensors.index.json").read_text())
    shards = sorted(file.name for file in (place / "out").glob("*.safetensors"))
    assert len(shards) > 2 and sorted(set(index["weight_map"].values())) == shards
    assert all(name.endswith(f"-of-{len(shards):05}.safetensors") for name in shards)


def test_a_weight_that_is_no_number_stops_it_first(place, tmp_path):
    """H04 a."""

    def spoil(model):
        model.model.layers[0].mlp.up_proj.weight[3, 5] = float("nan")

    source = write_model(tmp_path / "nan", change=spoil)
    seen = []
    with pytest.raises(WorkbenchError) as caught:
        for event in pipeline.run(
            {"model": source, "output": place / "o", "recipe": recipe.to_dict(recipe.RTN)}, place
        ):
            seen.append(event)
    assert caught.value.values == {"name": "model.layers.0.mlp.up_proj.weight", "count": 1}
    assert not [event for event in seen if isinstance(event, ModuleDone)] and not (place / "o").exists()


def test_two_jobs_at_once_do_not_take_each_others_place(place):
    """The second used to replace the first one's result unasked."""
    first = checkpoint.Checkpoint(place / "model", place / "new", None)
    first.open()
    try:
        with pytest.raises(WorkbenchError, match="Another job is writing"):
            quantized(place / "model", place / "new", "rtn")
        assert first.folder.is_dir()
    finally:
        first.discard()
    quantized(place / "model", place / "new", "rtn")
    assert not [name for name in os.listdir(place) if "partial" in name]


def test_what_was_left_under_our_own_number_is_cleared(place):
    """In a container every run may have the same pid."""
    left = places.partial(place / "new")
    left.mkdir()
    (left / "model.safetensors").write_text("half")
    quantized(place / "model", place / "new", "rtn")
    assert (place / "new/config.json").is_file() and not left.exists()


def test_what_came_under_the_name_meanwhile_stays(place):
    result = checkpoint.Checkpoint(place / "model", place / "new", None)
    result.open()
    (place / "new").mkdir()
    (place / "new/mine.txt").write_text("dear")
    with pytest.raises(WorkbenchError, match="holds no quantized model"):
        result.publish(replace=True)
    result.discard()
    assert (place / "new/mine.txt").read_text() == "dear"
