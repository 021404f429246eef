"""A profile on a device: the numbers that vLLM will print, before it is started."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from workbench.catalog.capacity import Device
from workbench.catalog.folder import inspect
from workbench.engine.fit import fit, left_over, measured_kv, need, shorter_context
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation

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
    assert left_over(found) == found.available - found.weights - found.overhead - 2**30
    assert measured_kv(found, 100) == 4_608_000 and measured_kv(found, None) is None


def test_on_a_gpu_the_share_bounds_it_and_the_cache_takes_the_rest(model, gpu):
    found = fit(model, Profile(model.folder, context=2048, memory_share=0.5), gpu)
    assert found.available == 12_000_000_000 and left_over(found) == 0
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
    assert alone.available - both.available == alone.weights
    heads = fit(model, Profile(model.folder, kv_gib=1.0, speculation=Speculation("medusa", 4, draft)), cpu)
    assert heads.tokens_that_fit == alone.tokens_that_fit


def test_own_layers_for_mtp_keep_their_part_as_well(write_tiny, cpu):
    config = {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
    extra = {"model.mtp_layers.0.input_proj.weight": np.zeros((64, 128), np.float32)}
    model = inspect(write_tiny("whole", config=config, edit=extra))
    plain, drafting = (Profile(model.folder, kv_gib=1.0, speculation=each) for each in (None, Speculation("mtp", 1)))
    assert fit(model, plain, cpu).kv_bytes_per_token == 1024
    assert fit(model, drafting, cpu).kv_bytes_per_token == 1536, "a third layer"
