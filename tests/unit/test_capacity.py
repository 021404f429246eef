"""Memory arithmetic: what vLLM would print, and sentences where it does not fit."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from workbench.catalog import describe, devices, fit
from workbench.catalog.capacity import GIB, Device, capacity, kv_bytes_per_token
from workbench.catalog.folder import inspect
from workbench.catalog.linears import Linear
from workbench.catalog.overhead import (
    BESIDE_TORCH,
    CPU_PROCESSES,
    GRAPHS,
    LOGIT,
    LOGIT_EARLIER,
    STREAMS,
    Overhead,
    estimate,
)

GPU = Device("RTX 3090", "gpu", 24 * GIB, 23 * GIB, 936e9)
CPU = Device("CPU", "cpu", 16 * GIB, 8 * GIB, None, packed_kernel=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(tiny):
    return inspect(tiny)


@pytest.fixture
def long(model):
    """The shape of SmolLM2-135M with a context of 131072, on F-TINY's weights."""
    return replace(model, layers=30, kv_heads=3, head_dim=64, context=131072)


def test_the_context_that_does_not_fit(long):  # H22
    assert kv_bytes_per_token(long) == 23040
    found = capacity(long, GPU, kv_budget=GIB)
    assert (found.kv_bytes_per_token, found.tokens_that_fit, found.slots, found.fits) == (23040, 46603, 0, False)
    sentence = str(found.sentence)
    assert all(part in sentence for part in ("131,072", "2.81 GiB", "1.00 GiB", "46,603", "46,464"))
    assert found.longest == 46464 and capacity(long, GPU, context=found.longest, kv_budget=GIB).fits


def test_the_cpu_computes_in_float32(long):
    found = capacity(long, CPU, kv_budget=GIB)
    assert (found.value_bytes, found.kv_bytes_per_token, found.tokens_that_fit) == (4, 46080, 23301)
    assert found.weights == 4 * long.parameters and found.overhead == CPU_PROCESSES
    assert capacity(long, CPU, kv_budget=GIB, value_bytes=2).tokens_that_fit == 46603


@pytest.mark.parametrize(
    ("budget", "context", "block", "printed"),
    [
        # Each as vLLM 0.32 printed it on this processor (ran).
        (GIB, 2048, None, (23296, 11.38)), (GIB, 8192, None, (23296, 2.84)),
        (int(0.7 * GIB), 1000, None, (15875, 15.88)),
        # Half a block does not hold the rest of a conversation.
        (4 * 128 * 46080, 4 * 128, None, (512, 1.0)), (4 * 128 * 46080 - 1, 4 * 128, None, (384, 0.75)),
        (10 * 32 * 46080, 64, 32, (320, 5.0)),
    ],
)  # fmt: skip
def test_the_tokens_are_those_that_vllm_prints(long, budget, context, block, printed):
    found = capacity(long, CPU, context=context, kv_budget=budget, block=block)
    assert (found.kv_tokens, round(found.concurrency, 2)) == printed
    assert found.slots == int(printed[1]) and found.fits == (printed[1] >= 1) == (not found.too_long)


def test_what_a_gpu_gives_beside_weights_and_cache(model):
    """The step that vLLM 0.32 tries: 2,048 tokens and 256 sequences below 70 GiB, 8,192 and 1,024 on an H200."""
    wide = replace(model, hidden=3584, intermediate=18944, vocab=152064)
    layer = 2 * (STREAMS * 3584 + 3 * 18944)
    assert estimate(wide, GPU) == Overhead(2048 * layer, GRAPHS, BESIDE_TORCH)
    h200 = Device("NVIDIA H200", "gpu", 140 * GIB, 139 * GIB)
    assert estimate(wide, h200).activations == 8192 * layer
    assert estimate(wide, replace(h200, name="A100 80GB")).activations == 2048 * layer
    few = {"batched": 1024}
    assert estimate(wide, h200, **few).activations == 1024 * 152064 * LOGIT
    assert estimate(wide, h200, **few, drafting=True).activations == 1024 * 152064 * LOGIT_EARLIER
    expert = Linear("model.layers.0.mlp.experts.0.up_proj", 0, "up", 8, 8)
    assert estimate(replace(wide, linears=(expert,)), h200, **few).activations == 1024 * 152064 * LOGIT_EARLIER
    assert estimate(wide, h200, **few, sequences=8).activations == 1024 * layer
    assert estimate(wide, GPU, graphs=False).graphs == 0
    assert estimate(wide, CPU) == Overhead(rest=CPU_PROCESSES)


H200 = Device("NVIDIA H200", "gpu", 150_109_880_320, 150_109_880_320)
SEVEN_B = {
    "layers": 28, "hidden": 3584, "intermediate": 18944, "kv_heads": 4, "head_dim": 128, "vocab": 152064,
    "context": 32768,
}  # fmt: skip
SMOL = {
    "layers": 30, "hidden": 576, "intermediate": 1536, "kv_heads": 3, "head_dim": 64, "vocab": 49152, "context": 8192,
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "weights", "draft", "printed"),
    [
        (SEVEN_B, 15_231_233_024, 0, 2_115_440),
        (SEVEN_B, 5_545_261_120, 0, 2_284_352),
        (SMOL, 269_030_016, 0, 5_962_912),
        (SMOL, 269_030_016, 269_030_016, 2_930_816),
    ],
)
def test_the_first_estimate_beside_what_an_h200_then_printed(model, shape, weights, draft, printed):
    """By vLLM 0.26 on 2026-11-30; the last with SmolLM2 as its own draft, whose every token takes its part as well."""
    model = replace(model, **shape)
    beside = kv_bytes_per_token(model) if draft else 0
    expected = estimate(model, H200, drafting=bool(draft))
    found = capacity(model, H200, loaded=weights, draft=draft, beside=beside, overhead=expected)
    assert found.kv_tokens == pytest.approx(printed, rel=0.011)


def test_what_is_known_takes_the_estimates_place(model):
    known = Overhead(3 * GIB, GIB, GIB)
    found = capacity(model, GPU, loaded=2 * GIB, draft=GIB, overhead=known)
    assert (found.weights, found.activations, found.graphs, found.overhead) == (2 * GIB, 3 * GIB, GIB, 5 * GIB)
    assert found.kv_budget == found.available - 8 * GIB
    assert (found.total, found.others) == (24 * GIB, GIB)


def test_known_models():
    qwen = SimpleNamespace(layers=28, kv_heads=4, head_dim=128, latent=None)
    assert kv_bytes_per_token(qwen) == 57344
    assert kv_bytes_per_token(SimpleNamespace(layers=27, kv_heads=16, head_dim=128, latent=576)) == 27 * 576 * 2
    assert kv_bytes_per_token(SimpleNamespace(layers=27, kv_heads=None, head_dim=128, latent=None)) is None


def test_the_gpu_budget_is_what_is_left(model):
    found = capacity(model, GPU)
    assert found.available == int(24 * GIB * 0.92) < GPU.free_bytes
    assert found.kv_budget == found.available - 2 * model.parameters - estimate(model, GPU).total
    assert capacity(model, replace(GPU, free_bytes=5 * GIB)).available == 5 * GIB
    assert found.fits and found.slots == found.tokens_that_fit // 128


def test_weights_that_do_not_fit(model):
    found = capacity(replace(model, parameters=20 * 10**9), GPU)
    assert not found.fits and found.kv_budget == 0 and found.tokens_that_fit == 0 and found.slots == 0
    assert "40.8 GB" in str(found.sentence) and "23.7 GB" in str(found.sentence)
    assert not capacity(model, GPU, kv_budget=23 * GIB).fits


def test_precisions_shrink_the_weights(model):
    found = fit.by_precision(model, GPU)
    packable = sum(linear.weights for linear in model.linears)
    plain = 2 * (model.parameters - packable)
    assert list(found) == ["FP16", "INT8", "INT4"]
    assert found["FP16"].weights == plain + 2 * packable
    assert plain + packable < found["INT8"].weights < plain + 1.1 * packable
    assert plain + packable / 2 < found["INT4"].weights < plain + 0.6 * packable
    assert found["INT4"].remark is None


def test_a_known_size_is_used_as_it_is(model):
    assert capacity(model, GPU, "INT4", weights=12345).weights == 12345


@pytest.mark.parametrize(
    ("precision", "kernel", "width", "unpacked"),
    [
        ("INT4", True, 2, False),
        ("INT4", False, 2, True),
        ("INT4", True, 4, True),
        ("INT8", True, 2, True),
        ("FP16", True, 4, False),
    ],
)
def test_where_packed_weights_are_unpacked(model, precision, kernel, width, unpacked):
    found = capacity(model, replace(CPU, packed_kernel=kernel), precision, value_bytes=width)
    assert found.unpacked == unpacked and bool(found.remark) == unpacked
    assert (found.weights == model.parameters * width) == (unpacked or precision == "FP16")


def test_the_roofline_reads_every_weight_once(model):
    found = capacity(model, GPU)
    read = 2 * (model.parameters - model.vocab * model.hidden)  # of the input embedding only a row
    assert found.roofline_tok_s == pytest.approx(936e9 / read)
    assert capacity(replace(model, tied=True), GPU).roofline_tok_s < found.roofline_tok_s
    assert capacity(model, replace(GPU, bandwidth_bytes_s=None)).roofline_tok_s is None
    assert capacity(model, replace(CPU, bandwidth_bytes_s=3e10)).roofline_measured, "no datasheet tells a processor's"
    assert not found.roofline_measured and not capacity(model, CPU).roofline_measured


def test_unknown_shapes_stay_unknown(model):
    found = capacity(replace(model, heads=None, kv_heads=None), GPU)
    assert (found.kv_bytes_per_token, found.tokens_that_fit, found.slots, found.longest) == (None, None, None, None)
    assert found.fits and str(found.sentence)


def test_this_machine_has_a_device():
    first = devices.devices()[0]
    assert first.name and first.kind in ("cpu", "gpu") and 0 < first.free_bytes <= first.total_bytes
    assert first.bandwidth_bytes_s is None or first.bandwidth_bytes_s > 1e8, "slow memory on a busy machine"


class Driver:
    """Answers as NVML does."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_MEM = 2
    nvmlMemory_v2 = 0x2000028

    def __init__(self, names, broken=False, old=False):
        self.names, self.broken, self.old, self.open = names, broken, old, False

    def nvmlInit(self):
        if self.names is None:
            raise self.NVMLError
        self.open = True

    def nvmlShutdown(self):
        self.open = False

    def nvmlDeviceGetCount(self):
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        if version and self.old:
            raise self.NVMLError
        return SimpleNamespace(total=24 * GIB, free=20 * GIB, **({"reserved": GIB // 2} if version else {}))

    def nvmlDeviceGetMemoryBusWidth(self, handle):
        if self.broken:
            raise self.NVMLError
        return 384

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        assert kind == self.NVML_CLOCK_MEM
        return 9751


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA GeForce RTX 3090", 936e9),
        ("NVIDIA GeForce RTX 4090", 1008e9),
        ("NVIDIA GeForce RTX 5090", 1792e9),
        ("NVIDIA A100-SXM4-40GB", 1555e9),
        ("NVIDIA A100-SXM4-80GB", 2039e9),
        ("NVIDIA H100 80GB HBM3", 3350e9),
        ("NVIDIA H200", 4800e9),
        ("NVIDIA Unheard Of", 384 / 8 * 9751e6 * 2),
    ],
)
def test_bandwidth_of_gpus(monkeypatch, name, bandwidth):
    driver = Driver([name])
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    (found,) = devices.devices()
    assert (found.name, found.kind, found.bandwidth_bytes_s) == (name, "gpu", pytest.approx(bandwidth))
    assert not driver.open


def test_what_the_driver_keeps_of_a_gpu_is_not_counted(monkeypatch):
    """vLLM takes its share of what CUDA counts, 139.80 GiB of an H200 whose driver says 140.40."""
    monkeypatch.setitem(sys.modules, "pynvml", Driver(["NVIDIA H200"]))
    assert (devices.devices()[0].total_bytes, devices.devices()[0].free_bytes) == (23.5 * GIB, 20 * GIB)
    monkeypatch.setitem(sys.modules, "pynvml", Driver(["NVIDIA H200"], old=True))
    assert devices.devices()[0].total_bytes == 24 * GIB


def test_without_a_driver_or_a_figure(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver(None))
    assert [device.kind for device in devices.devices()] == ["cpu"]
    monkeypatch.setitem(sys.modules, "pynvml", Driver(["NVIDIA Unheard Of"], broken=True))
    assert devices.devices()[0].bandwidth_bytes_s is None


def test_rows_for_programs(tiny, monkeypatch):
    monkeypatch.setattr(describe, "devices", lambda: [CPU])
    rows = describe.capacities(tiny, 64, 1.0)
    assert [(row["computed_in"], row["precision"]) for row in rows] == [
        (width, precision) for width in ("float32", "bfloat16") for precision in ("FP16", "INT8", "INT4")
    ]
    per_token = 2 * 2 * 2 * 32 * 2
    assert rows[3]["kv_bytes_per_token"] == per_token and rows[3]["tokens_that_fit"] == GIB // per_token
    assert all(isinstance(row["sentence"], str) and row["context"] == 64 for row in rows)
