"""What is finished is not made again: killed runs, changed recipes, and changes of mind on the way."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from family_models import write_family
from quantization_models import TEXT, quantized, write_model

from workbench import amend, jobs, quant_report, recipe
from workbench.errors import WorkbenchError
from workbench.events import Finished, Note, Stage, decode
from workbench.quant_events import Amended, ModuleDone, ModuleStarted
from workbench.quantization import kept_blocks, pipeline

LAYERS = 3


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("resume") / "model", num_hidden_layers=LAYERS)


def weights(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def started(events):
    return sorted({event.block for event in events if isinstance(event, ModuleStarted)})


def done(events):
    return [event.name for event in events if isinstance(event, ModuleDone)]


def taken_over(events):
    return [event.values for event in events if isinstance(event, Note) and "taken over" in event.message]


def changed_from(block, **changes):
    """The best recipe with other choices from a block on."""
    patterns = tuple(f"*.layers.{index}.mlp.*" for index in range(block, LAYERS))
    return recipe.with_rules(recipe.BEST, patterns, replace(recipe.BEST.mlp, **changes))


def make_job(tmp_path, source, chosen=recipe.BEST, name="out", **spec):
    text = tmp_path / "text.txt"
    text.write_text(TEXT * 60)
    spec = {
        "model": str(source), "output": str(tmp_path / name), "held_tokens": 0, "reuse": True, "threads": 1,
        "recipe": recipe.to_dict(replace(chosen, calibration_file=str(text))),
    } | spec  # fmt: skip
    return jobs.create("quantize", spec)


def test_a_second_run_takes_everything_over_bit_for_bit(tmp_path, source):
    first = quantized(source, tmp_path / "a", "best", reuse=True)
    second = quantized(source, tmp_path / "b", "best", reuse=True)
    fresh = quantized(source, tmp_path / "c", "best")
    assert started(first) == [0, 1, 2] and not taken_over(first)
    assert started(second) == [] and taken_over(second) == [{"count": LAYERS, "total": LAYERS}]
    assert weights(tmp_path / "a") == weights(tmp_path / "b") == weights(tmp_path / "c")
    assert done(second) == done(fresh)


@pytest.mark.parametrize("activations", ["kept", "no room", "faster made than written"])
def test_blocks_before_the_first_changed_one_are_taken_over(tmp_path, source, own_home, monkeypatch, activations):
    """Where the activations were not kept they are computed again from what the blocks became."""
    if activations == "no room":
        monkeypatch.setattr(kept_blocks.KeptBlocks, "_make_room", lambda self, size: False)
    elif activations != "kept":
        monkeypatch.setattr(kept_blocks, "PACE", 1)
    quantized(source, tmp_path / "a", "best", reuse=True)
    assert bool(list(own_home.glob(f"cache/blocks/*/*/{kept_blocks.LEAVING}"))) == (activations == "kept")
    changed = changed_from(2, bits=8)
    events = quantized(source, tmp_path / "b", changed, reuse=True)
    assert started(events) == [2] and taken_over(events) == [{"count": 2, "total": LAYERS}]
    quantized(source, tmp_path / "fresh", changed)
    assert weights(tmp_path / "b") == weights(tmp_path / "fresh") != weights(tmp_path / "a")
    assert started(quantized(source, tmp_path / "c", changed_from(0, bits=8), reuse=True)) == [0, 1, 2]


@pytest.mark.parametrize("family", ["gemma2", "qwen3_moe", "phi3"])
def test_other_structures_are_taken_over_bit_for_bit(tmp_path, monkeypatch, family):
    """Without room for activations, so the finished block is run again as it was quantized."""
    monkeypatch.setattr(kept_blocks.KeptBlocks, "_make_room", lambda self, size: False)
    model = write_family(tmp_path / family, family)
    quantized(model, tmp_path / "a", "best", reuse=True)
    plain = recipe.Choice(method="rtn", bits=8)
    changed = recipe.with_rules(recipe.BEST, ("*.layers.1.*_proj",), plain)
    events = quantized(model, tmp_path / "b", changed, reuse=True)
    assert started(events) == [1]
    quantized(model, tmp_path / "fresh", changed)
    assert weights(tmp_path / "b") == weights(tmp_path / "fresh") != weights(tmp_path / "a")


def test_another_text_or_model_takes_nothing_over(tmp_path, source):
    quantized(source, tmp_path / "a", "best", reuse=True)
    assert started(quantized(source, tmp_path / "b", replace(recipe.BEST, samples=2, length=64), reuse=True)) == [
        0,
        1,
        2,
    ]
    copy = shutil.copytree(source, tmp_path / "copy")
    os.utime(copy / "model.safetensors", (1, 1))
    assert started(quantized(copy, tmp_path / "c", "best", reuse=True)) == [0, 1, 2]


def test_a_killed_job_continues_at_the_last_finished_block(tmp_path, source):
    job = make_job(tmp_path, source)
    worker = subprocess.Popen([sys.executable, "-m", "workbench.worker", str(job)], stdout=subprocess.PIPE, text=True)
    for line in worker.stdout:
        event = decode(line)
        if isinstance(event, ModuleDone) and event.block == 1:
            break
    worker.send_signal(signal.SIGKILL)
    worker.wait(10)
    worker.stdout.close()
    assert not (tmp_path / "out").exists()
    events = list(pipeline.run(jobs.spec_of(job), jobs.again(job)))
    assert started(events) == [1, 2] and taken_over(events) == [{"count": 1, "total": LAYERS}]
    stages = [event for event in events if isinstance(event, Stage) and event.name == "Quantizing"]
    assert [stage.total for stage in stages] == [14]  # the pace is that of what is left
    list(pipeline.run(jobs.spec_of(make_job(tmp_path, source, name="whole", reuse=False)), tmp_path))
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]


def test_a_block_that_was_cut_is_made_again(tmp_path, source, own_home):
    quantized(source, tmp_path / "a", "best", reuse=True)
    for block in own_home.glob("cache/blocks/*/*/block.safetensors"):
        block.write_bytes(block.read_bytes()[:-100])
    assert started(quantized(source, tmp_path / "b", "best", reuse=True)) == [0, 1, 2]
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_without_space_nothing_is_kept_and_the_run_goes_on(tmp_path, source, own_home, monkeypatch):
    monkeypatch.setattr(kept_blocks.KeptBlocks, "_free", lambda self: 1000)
    events = quantized(source, tmp_path / "a", "best", reuse=True)
    told = [event for event in events if isinstance(event, Note) and "Too little space" in event.message]
    assert len(told) == 1 and isinstance(events[-1], Finished)
    assert not list(own_home.glob("cache/blocks/*/*"))


def test_older_activations_make_way_and_the_newest_stay(tmp_path, source, own_home, monkeypatch):
    monkeypatch.setattr(kept_blocks, "ACTIVATION_BYTES", 1)
    quantized(source, tmp_path / "a", "best", reuse=True)
    kept = list(own_home.glob(f"cache/blocks/*/*/{kept_blocks.LEAVING}"))
    assert len(kept) == 1 and len(list(own_home.glob("cache/blocks/*/*/block.safetensors"))) == LAYERS


def test_the_oldest_models_blocks_go_when_they_are_many(tmp_path, source, own_home, monkeypatch):
    blocks, sizes = own_home / "cache/blocks", {"old": 700, "new": 300}
    for age, (name, size) in enumerate(sizes.items()):
        (blocks / name / "link").mkdir(parents=True)
        (blocks / name / "link" / kept_blocks.BLOCK).write_bytes(bytes(size))
        os.utime(blocks / name, (age, age))
    monkeypatch.setattr(kept_blocks, "OTHERS_BYTES", 999)
    quantized(source, tmp_path / "a", "rtn", reuse=True)
    assert not (blocks / "old").exists() and (blocks / "new").exists()
    assert len(list(blocks.glob(f"*/*/{kept_blocks.BLOCK}"))) == 1 + LAYERS


def amended_run(job, chosen, at_block):
    """Run the job and change its recipe in the middle of a block."""
    events = []
    for event in pipeline.run(jobs.spec_of(job), job):
        with (job / "events.jsonl").open("a") as kept:
            print(json.dumps({"kind": "ModuleStarted", "name": event.name, "block": event.block}), file=kept) if (
                isinstance(event, ModuleStarted)
            ) else None
        if isinstance(event, ModuleStarted) and event.block == at_block and event.name.endswith("q_proj"):
            amend.amend(job, chosen)
        events.append(event)
    return events


def alive(job):
    import psutil

    (job / "pid").write_text(f"{os.getpid()} {psutil.Process().create_time()}")
    return job


def test_an_amendment_holds_from_the_next_block_on_and_can_be_made_again(tmp_path, source):
    job = alive(make_job(tmp_path, source))
    base = recipe.from_dict(jobs.spec_of(job)["recipe"])
    wanted = replace(base, name="mine", mlp=replace(base.mlp, method="rtn", bits=8))
    events = amended_run(job, wanted, at_block=1)
    assert [event.from_block for event in events if isinstance(event, Amended)] == [2]
    bits = {(event.block, event.bits) for event in events if isinstance(event, ModuleDone) and ".mlp." in event.name}
    assert bits == {(0, 4), (1, 4), (2, 8)}
    report = json.loads((job / "report.json").read_text())
    assert report["amended"] == [2] and report["command"].endswith(f"--recipe {job}/recipe.json --replace")
    final = recipe.load(str(job / "recipe.json"))
    quantized(source, tmp_path / "again", final, threads=1)
    assert weights(tmp_path / "again") == weights(tmp_path / "out")


def test_an_amendment_that_cannot_work_is_not_handed_over(tmp_path, source):
    job = alive(make_job(tmp_path, source))
    base = recipe.from_dict(jobs.spec_of(job)["recipe"])
    torn = recipe.with_rules(base, ("*.layers.2.self_attn.q_proj",), recipe.Choice(method="rtn", bits=8))
    made = amend.amend(job, torn)
    assert made.blocks and not (job / "amendments.jsonl").exists()
    with pytest.raises(WorkbenchError, match="calibration cannot change"):
        amend.amend(job, replace(base, seed=7))
    (job / "events.jsonl").write_text('{"kind":"ModuleStarted","name":"x","block":2}\n')
    with pytest.raises(WorkbenchError, match="begun already"):
        amend.amend(job, base)
    (job / "events.jsonl").write_text('{"kind":"Finished","path":"/x","size":1}\n')
    with pytest.raises(WorkbenchError, match="has ended"):
        amend.amend(job, base)


def test_a_report_has_every_layer_and_says_what_repeats_it(tmp_path, source):
    job = make_job(tmp_path, source, reuse=False)
    events = list(pipeline.run(jobs.spec_of(job), job))
    report = json.loads((job / "report.json").read_text())
    assert [row["name"] for row in report["modules"]] == done(events) and len(done(events)) == 7 * LAYERS
    assert all(check["passed"] for check in report["checks"]) and report["failure"] is None
    page = quant_report.of_job(job).read_text()
    assert all(name in page for name in done(events)) and str(job / "recipe.json") in page
    assert json.loads((tmp_path / "out" / "lathe.json").read_text())["recipe"] == report["recipe"]
    with pytest.raises(WorkbenchError, match="is no job"):
        quant_report.of_job(tmp_path)
