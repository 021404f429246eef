"""What engines took is remembered by all that it depends on, and laid over the estimate with the reason."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from workbench import cli, paths
from workbench.catalog.capacity import GIB, Device
from workbench.catalog.devices import devices
from workbench.catalog.folder import inspect
from workbench.catalog.overhead import Overhead
from workbench.engine import memory_kept, overlay, room
from workbench.engine.facts import EngineFacts
from workbench.engine.fit import fit
from workbench.engine.memory_kept import of_model, recall, remember
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.engine_events import EngineMemory, EngineReady
from workbench.errors import WorkbenchError
from workbench.terminal import JobProgress

GPU = Device("RTX 3090", "gpu", 24 * GIB, 23 * GIB, 936e9)
CPU = Device("CPU", "cpu", 16 * GIB, 8 * GIB)
PYTHON = "/opt/python"
TOOK = EngineMemory(5, 4, 3, 2, GIB, 1000, 100, 10.0, 24 * GIB, 1)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def profile(tiny):
    return Profile(tiny, context=64, kv_gib=0.25)


def test_it_is_found_again_whatever_the_cache_is(profile):
    assert recall(profile, PYTHON, CPU) is None and of_model(profile.model) == []
    remember(profile, PYTHON, CPU, TOOK)
    alike = replace(profile, context=32, kv_gib=2.0, port=8123, name="other", block_size=32, scheduling="priority")
    assert recall(alike, PYTHON, CPU) == TOOK
    (kept,) = of_model(profile.model)
    assert (kept.device, kept.memory, kept.choices["dtype"]) == ("CPU", TOOK, "auto")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "bfloat16"}, {"max_sequences": 8}, {"batched_tokens": 512}, {"running": "eager"},
        {"speculation": Speculation()}, {"kv_dtype": "fp8"}, {"extra": ("--cpu-offload-gb", "1")},
    ],
)  # fmt: skip
def test_what_changes_the_memory_is_another_start(profile, change):
    remember(profile, PYTHON, CPU, TOOK)
    assert recall(replace(profile, **change), PYTHON, CPU) is None


def test_another_interpreter_device_or_checkpoint_is_another_start(profile):
    remember(profile, PYTHON, CPU, TOOK)
    assert recall(profile, "/other/python", CPU) is None and recall(profile, PYTHON, GPU) is None
    with (profile.model / "model-00001-of-00002.safetensors").open("ab") as file:
        file.write(b" ")
    assert recall(profile, PYTHON, CPU) is None and of_model(profile.model) == []


def test_what_a_later_start_does_not_tell_stays(profile):
    remember(profile, PYTHON, CPU, TOOK)
    remember(profile, PYTHON, CPU, EngineMemory(weights=6, kv_tokens=900))
    assert recall(profile, PYTHON, CPU) == replace(TOOK, weights=6, kv_tokens=900)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "[" * 100_000, '{"memory": 1}', '{"memory": {"weights": "x"}, "device": "a", "at": 1}',
        *(json.dumps({"device": "a", "at": 1, "choices": {}, "memory": {"weights": each}})
          for each in (-1, float("nan"), float("inf"), 1e30, True)),
    ],
)  # fmt: skip
def test_a_damaged_file_counts_as_none_and_is_written_anew(profile, text):
    remember(profile, PYTHON, CPU, TOOK)
    (path,) = (paths.home() / "memory").iterdir()
    path.write_text(text)
    assert recall(profile, PYTHON, CPU) is None and of_model(profile.model) == []
    remember(profile, PYTHON, CPU, TOOK)
    assert recall(profile, PYTHON, CPU) == TOOK and json.loads(path.read_text())


def test_only_so_many_are_kept(profile, monkeypatch):
    monkeypatch.setattr(memory_kept, "MOST", 3)
    for count in range(1, 6):
        remember(replace(profile, max_sequences=count), PYTHON, CPU, TOOK)
    assert len(list((paths.home() / "memory").iterdir())) == 3
    assert recall(replace(profile, max_sequences=5), PYTHON, CPU) == TOOK


# -- laid over the estimate


def told_of(found, **changes):
    """An engine that took what was estimated, but for the changes."""
    as_said = {
        "weights": found.weights + found.draft, "activations": found.activations, "graphs": found.graphs,
        "overhead": found.rest, "kv_bytes": found.kv_budget, "kv_tokens": found.kv_tokens, "context": found.context,
        "concurrency": found.concurrency, "total": found.total, "others": found.others,
    }  # fmt: skip
    return EngineMemory(**as_said | changes)


def said(found, told):
    return [str(each) for each in overlay.sentences(found, told)]


def test_the_parts_are_the_whole_device(profile):
    found = fit(inspect(profile.model), replace(profile, kv_gib=None), GPU)
    rows = overlay.rows(found, told_of(found))
    assert [row.part for row in rows] == [
        "others", "weights", "activations", "graphs", "overhead", "kv", "free",
    ]  # fmt: skip
    assert sum(row.estimate for row in rows) == sum(row.measured for row in rows) == GPU.total_bytes
    assert all(row.measured is None for row in overlay.rows(found, EngineMemory()))
    assert [row.part for row in overlay.rows(fit(inspect(profile.model), profile, CPU), EngineMemory())] == [
        "others", "weights", "overhead", "kv", "free",
    ]  # fmt: skip


def test_a_draft_is_a_part_until_the_engine_tells_both_as_one(profile, write_tiny):
    drafting = replace(profile, speculation=Speculation("draft_model", 4, write_tiny("draft")))
    found = fit(inspect(profile.model), drafting, GPU)
    before = {row.part: row.estimate for row in overlay.rows(found, EngineMemory())}
    assert before["draft"] == found.draft > 0
    after = {row.part: row for row in overlay.rows(found, told_of(found))}
    assert "draft" not in after and after["both"].estimate == after["both"].measured == found.weights + found.draft


def test_the_reason_of_a_difference_is_the_part_that_made_it(profile):
    found = fit(inspect(profile.model), replace(profile, kv_gib=None), GPU)
    (same,) = said(found, told_of(found))
    assert f"{found.kv_tokens:,} tokens, as estimated" in same and "of 64" in same

    def cache(more: int) -> dict[str, int]:
        """The cache as it is with that many bytes more."""
        return {"kv_bytes": found.kv_budget + more, "kv_tokens": found.kv_tokens + more // found.kv_bytes_per_token}

    first, why = said(found, told_of(found, **cache(-GIB), weights=found.weights + GIB))
    assert f"{found.kv_tokens - GIB // found.kv_bytes_per_token:,} tokens, not {found.kv_tokens:,}" in first
    assert why == "The difference: Weights took 1.1 GB more than estimated."
    without = told_of(found, **cache(found.graphs - 5), graphs=0, overhead=found.rest + 5)
    assert said(found, without)[1] == "The difference: CUDA graphs took 550 MB less than estimated."
    slightly = told_of(found, **cache(-GIB // 50), overhead=found.rest + GIB // 50)
    assert said(found, slightly)[1] == "The difference: Overhead took 21.5 MB more than estimated."
    assert "another size" in said(found, told_of(found, kv_tokens=7))[1]
    # A share that a pair was given: what the weights took more is not the reason.
    half = told_of(found, **cache(-found.kv_budget // 2), weights=found.weights + 9_000_000)
    assert "another share" in said(found, half)[1]
    assert "another length" in said(found, told_of(found, kv_tokens=7, context=3))[1]
    assert said(found, EngineMemory(weights=1)) == []


def test_the_second_estimate_of_a_gpu_start_is_what_the_first_took(profile):
    """An engine that takes other amounts than estimated, by vLLM's own sum: share less all that is not cache."""
    model = inspect(profile.model)
    loose = replace(profile, kv_gib=None)
    first = fit(model, loose, GPU)
    really = Overhead(2 * GIB, GIB // 2, GIB // 4)
    cache = int(GPU.total_bytes * 0.92) - first.weights - 5_000_000 - really.total
    told = told_of(
        first, weights=first.weights + 5_000_000, activations=really.activations, graphs=really.graphs,
        overhead=really.rest, kv_bytes=cache, kv_tokens=cache // (16 * first.kv_bytes_per_token) * 16,
    )  # fmt: skip
    remember(loose, PYTHON, GPU, told)
    second = fit(model, loose, GPU, recall(loose, PYTHON, GPU))
    assert second.kv_tokens == told.kv_tokens != first.kv_tokens
    assert said(second, told)[0].startswith(f"By vLLM the KV cache holds {told.kv_tokens:,} tokens, as estimated")


def test_a_terminal_hears_what_the_cache_holds_once_the_engine_is_ready(capsys):
    with JobProgress() as progress:
        progress(EngineMemory(kv_bytes=GIB))
        progress(EngineMemory(kv_bytes=GIB, kv_tokens=23296, context=8192, concurrency=2.84))
        assert "KV cache" not in capsys.readouterr().err
        progress(EngineReady("http://127.0.0.1:1", "k", "m", 1, 30.0, 2.5))
    told = " ".join(capsys.readouterr().err.split())
    assert "By vLLM the KV cache holds 23,296 tokens: 2.84 conversations of 8,192." in told


# -- refused before the start


def refusal(profile, device=CPU):
    try:
        room.check(profile, PYTHON, device)
    except WorkbenchError as error:
        return error
    return None


@pytest.fixture
def long(write_tiny):
    return write_tiny("long", config={"max_position_embeddings": 131072})


def test_h22_a_context_beyond_a_cache_of_fixed_size_is_refused_with_the_length_that_fits(long):
    profile = Profile(long, kv_gib=0.0625)  # 65,536 tokens of 1,024 bytes
    error = refusal(profile)
    assert "131,072 tokens need 0.12 GiB" in str(error) and "65,536 tokens fit" in str(error)
    assert error.values["max_length"] == 65536 - 128 and "65408" in error.hint
    assert refusal(replace(profile, context=65408)) is None


def test_what_vllm_may_take_all_the_same_is_not_refused(long, write_tiny):
    """On a GPU the size of the cache is only estimated, and layers that look back only so far keep fewer tokens."""
    profile = Profile(long, kv_gib=0.0625)
    assert refusal(replace(profile, extra=("--max-model-len=auto",))) is None
    forgetting = write_tiny("window", config={"max_position_embeddings": 131072, "sliding_window": 64})
    assert refusal(replace(profile, model=forgetting)) is None
    idle = write_tiny(
        "idle", config={"max_position_embeddings": 131072, "sliding_window": 9, "use_sliding_window": False}
    )
    assert refusal(replace(profile, model=idle)) is not None
    small = replace(GPU, total_bytes=918_000_000, free_bytes=918_000_000)
    found = fit(inspect(long), Profile(long), small)
    assert 0 < found.kv_budget < found.kv_bytes and not found.fits and refusal(Profile(long), small) is None
    # All that the weights leave would not do.
    endless = write_tiny("endless", config={"max_position_embeddings": 2 * 10**6})
    assert refusal(Profile(endless), small).values["max_length"] < 2 * 10**6
    assert refusal(Profile(long.parent / "absent")) is None


def test_the_device_is_that_of_the_engine(monkeypatch):
    monkeypatch.setattr(room, "devices", lambda: [GPU])
    facts = EngineFacts(PYTHON, "0.32.0", None, False, frozenset(), True, None)
    assert room.device_of(facts) == GPU and room.device_of(replace(facts, cpu=True)) is None
    second = replace(GPU, free_bytes=1)
    monkeypatch.setattr(room, "devices", lambda: [GPU, second])
    assert room.device_of(facts) == room.device_of(facts, "0") == GPU and room.device_of(facts, "1") == second
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert room.device_of(facts) == second and room.device_of(facts, "0") == GPU
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert room.device_of(facts) == GPU


# -- the command line


def test_lathe_capacity_shows_what_earlier_starts_measured(profile):
    here = devices()[0]
    bare = [str(profile.model), "--kv-gib", "0.25"]
    assert CliRunner().invoke(cli.app, ["capacity", *bare]).exit_code == 0
    told = replace(TOOK, overhead=1_234_000_000, kv_bytes=GIB // 4, kv_tokens=131072, context=128)
    told = replace(told, activations=0, graphs=0)
    remember(replace(profile, dtype="float32", context=128), PYTHON, here, told)
    rows = json.loads(CliRunner().invoke(cli.app, ["capacity", *bare, "--json"]).stdout)
    measured = [row["measured"] for row in rows if (row["computed_in"], row["precision"]) == ("float32", "FP16")]
    ((start,),) = measured
    assert start["memory"]["overhead"] == 1_234_000_000 and start["choices"]["dtype"] == "float32"
    assert start["learned"] and start["overhead"] == 1_234_000_000
    assert sum(len(row["measured"]) for row in rows) == 1
    shown = CliRunner().invoke(cli.app, ["capacity", *bare], env={"COLUMNS": "200"}).stdout
    assert "Measured at earlier starts" in shown and "131,072" in shown and "1.2 GB" in shown
