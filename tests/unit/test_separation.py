"""Prefill and decode apart: what may serve together, and where."""

from dataclasses import replace
from pathlib import Path

import pytest

from workbench.catalog.capacity import Device
from workbench.engine import separation
from workbench.engine.profile import Adapter, Profile
from workbench.engine.separation import Leg, Separation
from workbench.engine.speculation import Speculation
from workbench.engine_events import EnginePhase
from workbench.errors import WorkbenchError
from workbench.events import Failed, LegEvent
from workbench.runs import EngineRun

MODEL = Path("/models/small")
GB = 10**9
CPU = [Device("CPU", "cpu", 32 * GB, 30 * GB)]


def gpus(count: int, free: int = 130 * GB) -> list[Device]:
    return [Device("H200", "gpu", 140 * GB, free) for _ in range(count)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Each engine needs 10 GB, whatever its folder holds."""
    monkeypatch.setattr(separation, "inspect", lambda folder: None)
    monkeypatch.setattr(separation, "need", lambda model, profile, device: type("Need", (), {"total": 10 * GB}))


def told(sentences) -> str:
    return " ".join(map(str, sentences))


@pytest.mark.parametrize(
    ("label", "other"),
    [
        ("The model's folder", {"model": Path("/models/./small2")}),
        ("Computing type", {"dtype": "bfloat16"}),
        ("KV cache type", {"kv_dtype": "fp8"}),
        ("Attention backend", {"attention": "FLASH_ATTN"}),
        ("LoRA adapters", {"adapters": (Adapter("a", Path("/a")),)}),
        ("Speculation", {"speculation": Speculation("draft_model", draft=Path("/d"))}),
    ],
)
def test_a_field_that_must_be_the_same_is_named(label, other):
    one = Profile(MODEL, name="m")
    legs = Separation((Leg(one),), (Leg(replace(one, **other)),))
    assert told(separation.problems(legs, CPU)).startswith(
        f"{label} is not the same for the prefill engine and the decode engine"
    )


def test_what_may_differ_is_no_problem():
    one = Profile(MODEL)
    other = replace(one, block_size=16, context=512, max_sequences=4, speculation=Speculation())
    assert separation.problems(Separation((Leg(one),), (Leg(other),)), CPU) == []


def test_legs_have_names_by_role():
    assert list(separation.of_profile(Profile(MODEL)).legs()) == ["prefill", "decode"]
    assert list(separation.of_profile(Profile(MODEL), 1, 2).legs()) == ["prefill", "decode 1", "decode 2"]
    assert separation.role_of("decode 2") == "decode"


def test_the_profile_s_port_is_the_front_s():
    made = separation.of_profile(Profile(MODEL, port=8000))
    assert made.port == 8000 and all(leg.profile.port == 0 for leg in made.legs().values())


def test_each_engine_gets_a_gpu_of_its_own_while_there_are_some():
    made = separation.of_profile(Profile(MODEL))
    assert [leg.devices for leg in separation.placed(made, gpus(2)).legs().values()] == [(0,), (1,)]
    assert not separation.in_turn(made, gpus(2))
    assert [leg.devices for leg in separation.placed(made, gpus(1)).legs().values()] == [(0,), (0,)]
    assert separation.in_turn(made, gpus(1))
    chosen = Separation((Leg(Profile(MODEL)),), (Leg(Profile(MODEL), devices=(0,)),))
    assert separation.placed(chosen, gpus(2)).prefill[0].devices == (1,)
    assert separation.placed(made, CPU) == made and not separation.in_turn(made, CPU)


def test_the_gpus_that_the_environment_does_not_name_are_left_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    made = separation.of_profile(Profile(MODEL))
    assert [leg.devices for leg in separation.placed(made, gpus(4)).legs().values()] == [(2,), (3,)]
    wide = separation.of_profile(Profile(MODEL, tensor_parallel=3))
    assert "split over 3 GPUs and was given 2" in told(separation.problems(wide, gpus(4)))
    chosen = Separation((Leg(Profile(MODEL)),), (Leg(Profile(MODEL), devices=(0,)),))
    assert [leg.devices for leg in separation.placed(chosen, gpus(4)).legs().values()] == [(2,), (0,)]


def test_too_few_gpus_are_told():
    there = Separation((Leg(Profile(MODEL), devices=(0,)),), (Leg(Profile(MODEL), devices=(3,)),))
    assert told(separation.problems(there, gpus(2))) == "The decode engine needs GPU 3; there are 2, counted from 0."
    assert "no GPU here for the prefill engine" in told(separation.problems(there, CPU))


def test_only_an_engine_that_reads_may_have_its_layers_in_groups():
    one, two = Leg(Profile(MODEL)), Leg(Profile(MODEL, pipeline_parallel=2))
    assert separation.problems(Separation((two,), (one,)), gpus(3)) == []
    refused = told(separation.problems(Separation((one,), (one, two)), gpus(4)))
    assert "decode engine 2 cannot have pipeline parallel" in refused


def test_weights_twice_must_fit():
    made = separation.of_profile(Profile(MODEL))
    assert separation.problems(made, gpus(1, free=21 * GB)) == []
    assert told(separation.problems(made, gpus(1, free=19 * GB))) == (
        "2 engines need 20.0 GB on one device and 19.0 GB are free."
    )
    assert separation.problems(made, gpus(2, free=19 * GB)) == []
    greedy = separation.of_profile(Profile(MODEL, memory_share=0.6))
    assert "add up to 120 %" in told(separation.problems(greedy, gpus(1)))


def test_what_shares_a_gpu_gets_its_part_of_what_is_free():
    made = separation.of_profile(Profile(MODEL))
    shared = [leg.profile.memory_share for leg in separation.settled(made, gpus(1, free=100 * GB)).legs().values()]
    assert shared == [0.34, 0.34]  # (10 + (97 - 20) / 2) of 140 GB
    assert separation.settled(made, gpus(2)).prefill[0].profile.memory_share is None
    chosen = separation.of_profile(Profile(MODEL, memory_share=0.2))
    assert separation.settled(chosen, gpus(1)).prefill[0].profile.memory_share == 0.2
    assert separation.settled(made, CPU) == made


def test_running_engines_are_only_addresses():
    there = separation.of_urls(("http://a:1", "http://b:2"), ("http://c:3",), key="k")
    assert list(there.legs()) == ["prefill 1", "prefill 2", "decode"]
    assert separation.problems(there, CPU) == [] and "loads the weights" not in told(separation.remarks(there, CPU))
    with pytest.raises(WorkbenchError, match="no address"):
        separation.of_urls(("http://[a:1",), ("http://c:3",))
    assert separation.of_urls(("a:1",), ("http://c:3/v1/",)).legs()["decode"].url == "http://c:3"
    with pytest.raises(WorkbenchError, match="key") as caught:
        separation.of_urls(("http://me:hidden@a:1",), ("http://c:3",))
    assert "hidden" not in str(caught.value)
    with pytest.raises(WorkbenchError, match="twice"):
        separation.of_urls(("http://a:1",), ("http://a:1/",))
    with pytest.raises(WorkbenchError, match="an engine each"):
        separation.of_urls((), ("http://c:3",))


def test_what_it_costs_is_said():
    sentences = told(separation.remarks(separation.of_profile(Profile(MODEL)), gpus(1)))
    for part in ("does not raise the throughput", "Each of the 2 engines", "share a GPU", "asks for no key"):
        assert part in sentences
    on_cpu = told(separation.remarks(separation.of_profile(Profile(MODEL)), CPU))
    assert "hardly for speed" in on_cpu and "share a GPU" not in on_cpu and "hardly for speed" not in sentences


def test_a_run_holds_the_runs_of_its_legs():
    run = EngineRun()
    run.apply(EnginePhase("starting", 1.0))
    run.apply(LegEvent("prefill", EnginePhase("starting", 1.0)))
    run.apply(LegEvent("prefill", Failed("It ended.")))
    assert (run.state, run.legs["prefill"].state) == ("starting", "failed")


def test_gpus_are_read_from_a_text():
    assert separation.read_devices(" 0, 1,") == (0, 1) == separation.read_devices("0 1")
    assert separation.read_devices("") == ()
    with pytest.raises(WorkbenchError, match="no GPUs"):
        separation.read_devices("GPU 0")
