"""A profile on a device: the numbers that vLLM will print, before it is started."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from workbench.catalog.capacity import GIB, Device
from workbench.catalog.folder import inspect
from workbench.engine import room
from workbench.engine.fit import fit, need, shorter_context
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576,
    "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    "max_position_embeddings": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    """A header like SmolLM2-135M's embedding, over a hole: no weights are read."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    size = 49152 * 576 * 2
    header = json.dumps(
        {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [49152, 576], "data_offsets": [0, size]}}
    ).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return inspect(tmp_path)


@pytest.fixture
def cpu():
    return Device("CPU", "cpu", 24_000_000_000, 20_000_000_000)


@pytest.fixture
def gpu():
    return Device("GPU", "gpu", 24_000_000_000, 23_000_000_000)


def test_a_context_that_does_not_fit_is_known_before_the_start(model, cpu):
    found = fit(model, Profile(model.folder, dtype="bfloat16", kv_gib=1.0), cpu)
    assert (found.kv_bytes_per_token, found.tokens_that_fit, found.fits) == (23040, 46603, False)
    assert "131,072" in str(found.sentence) and "2.81" in str(found.sentence) and "46,603" in str(found.sentence)
    length = shorter_context(found)
    assert 40_000 < length < 46_603
    shorter = fit(model, Profile(model.folder, dtype="bfloat16", kv_gib=1.0, context=length), cpu)
    assert shorter.fits and shorter_context(shorter) is None


def test_the_cpu_computes_in_32_bit_and_has_a_kv_cache_of_its_own_size(model, cpu):
    found = fit(model, Profile(model.folder, context=2048), cpu)
    assert found.kv_bytes_per_token == 46080 and found.kv_budget == 2**30
    assert need(model, Profile(model.folder, context=2048), cpu).kv == 2**30
    assert (found.kv_tokens, found.slots) == (23296, 11)


def test_on_a_gpu_the_share_bounds_it_and_the_cache_takes_the_rest(model, gpu):
    found = fit(model, Profile(model.folder, context=2048, memory_share=0.5), gpu)
    assert found.available == 12_000_000_000 == found.weights + found.overhead + found.kv_budget
    assert need(model, Profile(model.folder, context=2048), gpu).kv == 2048 * 23040


def test_an_fp8_cache_holds_twice_the_tokens(model, gpu):
    usual, halved = (fit(model, Profile(model.folder, kv_dtype=kind), gpu) for kind in ("auto", "fp8"))
    assert halved.kv_bytes_per_token == 11520 and halved.tokens_that_fit // 2 == usual.tokens_that_fit
    assert halved.weights == usual.weights


def test_no_room_for_the_weights_proposes_no_context(model, cpu):
    found = fit(model, Profile(model.folder), replace(cpu, free_bytes=1_000_000_000))
    assert not found.fits and shorter_context(found) in (None, found.longest)


def test_a_draft_takes_its_weights_and_its_part_of_every_token(write_tiny, cpu):
    """Two layers of 2 × 2 heads × 32 × 4 bytes: 1,024 bytes a token in each. vLLM counts both (ran)."""
    model, draft = inspect(write_tiny("target")), write_tiny("draft")
    alone = fit(model, Profile(model.folder, kv_gib=1.0), cpu)
    both = fit(model, Profile(model.folder, kv_gib=1.0, speculation=Speculation("draft_model", 4, draft)), cpu)
    assert (alone.tokens_that_fit, both.tokens_that_fit) == (2**30 // 1024, 2**30 // 2048)
    assert both.draft == alone.weights and both.available == alone.available and both.needed > alone.needed
    heads = fit(model, Profile(model.folder, kv_gib=1.0, speculation=Speculation("medusa", 4, draft)), cpu)
    assert heads.tokens_that_fit == alone.tokens_that_fit


def test_own_layers_for_mtp_keep_their_part_as_well(write_tiny, cpu):
    config = {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
    extra = {"model.mtp_layers.0.input_proj.weight": np.zeros((64, 128), np.float32)}
    model = inspect(write_tiny("whole", config=config, edit=extra))
    plain, drafting = (Profile(model.folder, kv_gib=1.0, speculation=each) for each in (None, Speculation("mtp", 1)))
    assert fit(model, plain, cpu).kv_bytes_per_token == 1024
    assert fit(model, drafting, cpu).kv_bytes_per_token == 1536, "a third layer"


def test_a_drafts_weights_come_off_what_the_cache_takes_of_a_gpu(write_tiny, gpu):
    model, draft = inspect(write_tiny("target")), write_tiny("draft")
    alone, both = (
        fit(model, Profile(model.folder, speculation=each), gpu)
        for each in (None, Speculation("draft_model", 4, draft))
    )
    assert alone.kv_budget - both.kv_budget == both.draft > 0


def test_the_next_estimate_is_what_the_last_start_took(model, gpu):
    """By the share that vLLM then has of the memory as it counts it, exactly."""
    taken = EngineMemory(300_000_000, 700_000_000, 250_000_000, 150_000_000, total=23_900_000_000)
    found = fit(model, Profile(model.folder, context=2048, memory_share=0.5), gpu, taken)
    assert (found.weights, found.activations, found.graphs, found.rest) == (
        300_000_000, 700_000_000, 250_000_000, 150_000_000,
    )  # fmt: skip
    assert found.kv_budget == 11_950_000_000 - 1_400_000_000 and found.learned
    assert found.kv_tokens == found.kv_budget // (16 * 23040) * 16
    assert need(model, Profile(model.folder), gpu, taken).fixed == 1_400_000_000


def test_what_no_start_told_stays_an_estimate(model, gpu, cpu):
    before = fit(model, Profile(model.folder), gpu)
    after = fit(model, Profile(model.folder), gpu, EngineMemory(graphs=0))
    assert after.overhead == before.overhead - before.graphs and after.weights == before.weights
    assert fit(model, Profile(model.folder), cpu, EngineMemory(overhead=7)).overhead == 7


def test_graphs_beside_the_share_leave_the_cache_as_it_is(model, gpu):
    """What counts is what was set aside for them; they took more."""
    found = fit(model, Profile(model.folder), gpu, EngineMemory(graphs=900_000_000, set_aside=100_000_000))
    assert found.graphs == 100_000_000


def test_layers_that_forget_are_counted_as_they_were_measured(model, cpu):
    profile = Profile(model.folder, context=4096, kv_gib=1.0)
    plain = fit(model, profile, cpu)
    alike = EngineMemory(kv_bytes=GIB, kv_tokens=plain.kv_tokens, context=4096)
    assert fit(model, profile, cpu, alike).kv_bytes_per_token == plain.kv_bytes_per_token
    forgetting = EngineMemory(kv_bytes=GIB, kv_tokens=3 * plain.kv_tokens, context=4096)
    found = fit(model, profile, cpu, forgetting)
    assert found.kv_tokens == pytest.approx(3 * plain.kv_tokens, rel=0.01)
    assert fit(model, Profile(model.folder, context=2048, kv_gib=1.0), cpu, forgetting).kv_tokens == plain.kv_tokens


def test_each_of_several_gpus_holds_its_share(model, gpu):
    alone = fit(model, Profile(model.folder), gpu)
    three = fit(model, Profile(model.folder, tensor_parallel=3), gpu)
    assert (three.weights, three.kv_bytes_per_token) == (alone.weights // 3, alone.kv_bytes_per_token // 3)


def test_a_context_that_no_cache_of_this_size_holds_is_refused_for_one_device_alone(write_tiny):
    """On several each holds a part, which is vLLM's to weigh."""
    model = write_tiny("long", config={"max_position_embeddings": 131072})
    profile = Profile(model, context=131072, kv_gib=0.01)
    device = Device("CPU", "cpu", 32 * GIB, 16 * GIB)
    with pytest.raises(WorkbenchError, match="context") as caught:
        room.check(profile, "python", device)
    assert 0 < caught.value.values["max_length"] < 131072
    room.check(replace(profile, tensor_parallel=2), "python", device)
