"""What a job states before it runs, beside what its worker really held at most.

Measured on a CPU as the worker's own pages and its part of shared ones, with a model of two layers, hidden size 2048,
MLP 5632 and a vocabulary of 49,152, on 8 samples of 256 tokens; the quantization with one layer, rounded plainly: it
is the measuring that takes most.
"""

import pytest
import tiny as maker

from workbench import job_needs, recipe
from workbench.job_needs import _Shape

MB = 10**6
WIDE = _Shape(block=44_040_192, layer=11_534_336, hidden=2048, widest=5632, vocab=49_152, blocks=2, stored=88_080_384)


def spec_of(model, name="layered", **more):
    chosen = recipe.to_dict(recipe.PRESETS[name]) | more
    return {"model": str(model), "output": "/nowhere", "recipe": chosen, "held_tokens": 1024, "measure_rtn": True}


@pytest.fixture
def wide(tiny, monkeypatch):
    monkeypatch.setattr(job_needs, "_shape", lambda model: WIDE)
    return tiny


@pytest.mark.parametrize(
    ("kind", "name", "held"), [("quantize", "rtn", 1848 * MB), ("statistics", "layered", 1437 * MB)]
)
def test_a_need_is_near_what_was_measured(wide, kind, name, held):
    needed = job_needs.of(kind, spec_of(wide, name, samples=8, length=256))["cpu"]
    assert 0.9 * held < needed < 1.3 * held


def test_more_text_a_second_target_and_no_measuring_show(wide):
    few, many = (job_needs.of("quantize", spec_of(wide, samples=samples))["cpu"] for samples in (64, 4096))
    assert many - few > 4 * (4096 - 64) * 512 * 2048
    aimed = job_needs.of("quantize", spec_of(wide, "best", samples=4096))["cpu"]
    assert aimed > many
    small = spec_of(wide, "rtn", samples=8)
    assert job_needs.of("quantize", small | {"held_tokens": 0})["cpu"] < job_needs.of("quantize", small)["cpu"]


def test_on_a_gpu_the_work_is_there_and_the_text_too_unless_it_is_much(wide, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert "gpu2" in job_needs.of("quantize", spec_of(wide, samples=64) | {"device": "cuda"})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    few = job_needs.of("quantize", spec_of(wide, samples=64) | {"device": "cuda"})
    assert set(few) == {"cpu", "gpu0"} and few["cpu"] > job_needs.CUDA_HOST
    much = job_needs.of("quantize", spec_of(wide, samples=8192) | {"device": "cuda"})
    assert much["cpu"] - few["cpu"] > 4 * 8192 * 512 * 2048


def test_beside_a_full_gpu_the_processor_is_offered_and_else_fewer_samples(wide):
    from workbench.book import Shortage
    from workbench.memory import Room

    spec = spec_of(wide, samples=4096)
    room = Room("H200", 140 * 10**9, 10**9)
    short = Shortage("gpu0", room, 3 * 10**9, {"gpu0": 10**9, "cpu": 100 * 10**9}, ())
    assert job_needs.smaller("quantize", spec | {"device": "cuda"}, short).value["device"] == "cpu"
    left = job_needs.of("quantize", spec)["cpu"] - 2 * 10**9
    offer = job_needs.smaller("quantize", spec, Shortage("cpu", room, 0, {"cpu": left}, ()))
    assert 16_384 / 512 <= offer.value["recipe"]["samples"] < 4096
    assert job_needs.of("quantize", offer.value)["cpu"] <= left
    assert job_needs.smaller("quantize", spec, Shortage("cpu", room, 0, {"cpu": 10**6}, ())) is None
    assert job_needs.smaller("sensitivity", spec, short) is None


def test_every_kind_of_a_real_model_has_a_need(tmp_path):
    model = maker.write(tmp_path / "m")
    for kind in ("quantize", "statistics", "sensitivity", "whatif"):
        assert job_needs.of(kind, spec_of(model))["cpu"] > job_needs.IMPORTED
    assert job_needs.of("quality", {"original": str(model), "candidates": ["/a"]})["cpu"] > job_needs.IMPORTED
