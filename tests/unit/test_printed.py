"""vLLM's own figures of its memory: formats of the source (0.26 and 0.32) filled in, and what 0.26 said on an H200."""

from dataclasses import replace
from pathlib import Path

import pytest

from workbench.catalog.capacity import Device, capacity, kv_bytes_per_token
from workbench.catalog.folder import inspect
from workbench.catalog.overhead import GIB, Overhead
from workbench.engine.printed import Printed
from workbench.engine_events import EngineMemory
from workbench.events import decode, encode
from workbench.runs import EngineRun

DATA = Path(__file__).with_name("data")

# gpu_model_runner.py, gpu_worker.py and kv_cache_utils.py of 0.32.
TODAY = """
(Worker pid=9) INFO 11-29 21:55:04 [gpu_model_runner.py:5149] Model loading took 14.25 GiB memory and 3.074501 seconds
(Worker pid=9) INFO 11-29 21:55:06 [gpu_model_runner.py:6474] Estimated CUDA graph memory: 0.45 GiB total
(Worker pid=9) INFO 11-29 21:55:07 [gpu_worker.py:759] Available KV cache memory: 110.25 GiB
(EngineCore pid=8) INFO 11-29 21:55:07 [kv_cache_utils.py:2327] GPU KV cache size: 2,064,384 tokens, \
Maximum concurrency for 32,768 tokens per request: 63.00x
(Worker pid=9) INFO 11-29 21:55:09 [gpu_model_runner.py:6581] Graph capturing finished in 2 secs, took 0.40 GiB
(Worker pid=9) INFO 11-29 21:55:09 [gpu_worker.py:971] CUDA graph pool memory: 0.4 GiB (actual), 0.45 GiB \
(estimated), difference: 0.05 GiB (12.5%).
(Worker pid=9) INFO 11-29 21:55:09 [gpu_worker.py:1034] Free memory on device (138.27/139.8 GiB) on startup. Desired \
GPU memory utilization is (0.92, 128.62 GiB). Actual usage is 14.5 GiB for consumed memory (weights + non-torch), \
3.87 GiB for peak activation, and 0.4 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with \
`--kv-cache-memory=1` (0.0 GiB) to fit into requested memory, or `--kv-cache-memory=2` (0.0 GiB) to fully utilize \
gpu memory. Current kv cache memory in use is 110.25 GiB.
"""

# 0.26: concurrency on a line of its own, "GiB for weight", and graphs that are not among the activations.
EARLIER = """
INFO 11-29 21:55:04 [model_runner.py:305] Model loading took 0.88 GiB and 3.074501 seconds
INFO 11-29 21:55:07 [gpu_worker.py:440] Available KV cache memory: 13.33 GiB
INFO 11-29 21:55:07 [kv_cache_utils.py:2177] GPU KV cache size: 18,720 tokens
INFO 11-29 21:55:07 [kv_cache_utils.py:2178] Maximum concurrency for 128 tokens per request: 146.25x
INFO 11-29 21:55:20 [gpu_model_runner.py:6844] Graph capturing finished in 5 secs, took 0.24 GiB
INFO 11-29 21:55:20 [gpu_worker.py:793] CUDA graph pool memory: 0.24 GiB (actual), 0.58 GiB (estimated), \
difference: 0.34 GiB (142.2%).
INFO 11-29 21:55:20 [gpu_worker.py:857] Free memory on device (15.89/16.0 GiB) on startup. Desired GPU memory \
utilization is (0.95, 15.2 GiB). Actual usage is 0.88 GiB for weight, 0.26 GiB for peak activation, 0.16 GiB for \
non-torch memory, and 0.24 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1`
"""

# What 0.26 printed on an H200 on 2026-11-30 for Qwen2-7B's shape in 4 bits; its newer model runner plans no graphs.
H200 = """
(EngineCore pid=3143) INFO 11-30 03:19:15 [model_runner.py:305] Model loading took 5.27 GiB and 2.577559 seconds
(EngineCore pid=3143) INFO 11-30 03:19:45 [gpu_worker.py:560] Available KV cache memory: 122.0 GiB
(EngineCore pid=3143) INFO 11-30 03:19:45 [kv_cache_utils.py:2177] GPU KV cache size: 2,284,352 tokens
(EngineCore pid=3143) INFO 11-30 03:19:45 [kv_cache_utils.py:2178] Maximum concurrency for 32,768 tokens per request: \
69.71x
(EngineCore pid=3143) INFO 11-30 03:19:50 [model_runner.py:747] Graph capturing finished in 6 secs, took 0.92 GiB
(EngineCore pid=3143) INFO 11-30 03:19:50 [gpu_worker.py:857] Free memory on device (139.29/139.8 GiB) on startup. \
Desired GPU memory utilization is (0.92, 128.62 GiB). Actual usage is 5.27 GiB for weight, 1.13 GiB for peak \
activation, 0.22 GiB for non-torch memory, and 0.92 GiB for CUDAGraph memory. Replace gpu_memory_utilization config \
with `--kv-cache-memory=129853166695` (120.94 GiB) to fit into requested memory, or `--kv-cache-memory=141309554176` \
(131.6 GiB) to fully utilize gpu memory. Current kv cache memory in use is 122.0 GiB.
"""

# The same day: SmolLM2-135M with itself as a draft, which the earlier model runner computes.
DRAFTED = """
(EngineCore pid=8266) INFO 11-30 03:43:56 [gpu_model_runner.py:5347] Model loading took 0.51 GiB memory and 0.866707 \
seconds
(EngineCore pid=8266) INFO 11-30 03:44:35 [gpu_model_runner.py:6737] Estimated CUDA graph memory: 0.62 GiB total
(EngineCore pid=8266) INFO 11-30 03:44:36 [gpu_worker.py:560] Available KV cache memory: 125.78 GiB
(EngineCore pid=8266) INFO 11-30 03:44:36 [kv_cache_utils.py:2177] GPU KV cache size: 2,930,816 tokens
(EngineCore pid=8266) INFO 11-30 03:44:36 [kv_cache_utils.py:2178] Maximum concurrency for 8,192 tokens per request: \
357.77x
(EngineCore pid=8266) INFO 11-30 03:44:45 [gpu_model_runner.py:6844] Graph capturing finished in 9 secs, took 0.51 GiB
(EngineCore pid=8266) INFO 11-30 03:44:45 [gpu_worker.py:793] CUDA graph pool memory: 0.51 GiB (actual), 0.62 GiB \
(estimated), difference: 0.1 GiB (19.8%).
(EngineCore pid=8266) INFO 11-30 03:44:45 [gpu_worker.py:857] Free memory on device (139.29/139.8 GiB) on startup. \
Desired GPU memory utilization is (0.92, 128.62 GiB). Actual usage is 0.51 GiB for weight, 1.47 GiB for peak \
activation, 0.24 GiB for non-torch memory, and 0.51 GiB for CUDAGraph memory. Replace gpu_memory_utilization config \
with `--kv-cache-memory=135004253799` (125.73 GiB) to fit into requested memory
"""


def read(text: str) -> EngineMemory:
    printed = Printed()
    return [told for line in text.splitlines() if (told := printed.take(line))][-1]


def gib(*values: float | None) -> list[object]:
    return [None if value is None else pytest.approx(value * GIB, abs=2) for value in values]


def parts(told: EngineMemory) -> list[int | None]:
    return [told.weights, told.activations, told.graphs, told.overhead, told.kv_bytes, told.total]


def within_share(told: EngineMemory) -> int:
    return told.weights + told.activations + told.set_aside + told.overhead + told.kv_bytes


def test_the_parts_add_up_to_the_share_that_the_engine_has():
    told = read(TODAY)
    # 128.62 less the cache, weights, 3.87 less the 0.45 of expected graphs, and graphs: 0.3.
    assert parts(told) == gib(14.25, 3.42, 0.40, 0.30, 110.25, 139.8)
    assert (told.kv_tokens, told.context, told.concurrency) == (2064384, 32768, 63.0)
    assert within_share(told) == pytest.approx(128.62 * GIB, abs=9)


def test_the_forms_of_earlier_versions():
    told = read(EARLIER)
    assert parts(told) == gib(0.88, 0.26, 0.24, 0.49, 13.33, 16.0)
    assert (told.kv_tokens, told.context, told.concurrency) == (18720, 128, 146.25)


def test_a_drafted_engine_as_an_h200_printed_it():
    told = read(DRAFTED)
    assert parts(told) == gib(0.51, 1.47, 0.51, 0.35, 125.78, 139.8)
    assert [told.set_aside] == gib(0.51) and within_share(told) == pytest.approx(128.62 * GIB, abs=9)


@pytest.mark.parametrize(
    ("text", "shape", "draft"),
    [
        (H200, {"layers": 28, "kv_heads": 4, "head_dim": 128, "context": 32768}, 0),
        (DRAFTED, {"layers": 30, "kv_heads": 3, "head_dim": 64, "context": 8192}, 269_030_016),
    ],
)
def test_the_next_estimate_is_what_an_h200_printed(tiny, text, shape, draft):
    """With the parts of one start as printed, in hundredths of a GiB, the next one's tokens are known to 0.1 %."""
    told, model = read(text), replace(inspect(tiny), **shape)
    device = Device("NVIDIA H200", "gpu", 150_109_880_320, 150_109_880_320)
    taken = Overhead(told.activations, told.set_aside, told.overhead)
    beside = kv_bytes_per_token(model) if draft else 0
    found = capacity(model, device, loaded=told.weights - draft, draft=draft, overhead=taken, beside=beside)
    assert found.kv_tokens == pytest.approx(told.kv_tokens, rel=0.001)


def test_without_graphs_there_are_none():
    eager = "\n".join(
        line for line in TODAY.splitlines() if "raph capturing" not in line and "graph memory:" not in line
    )
    told = read(eager.replace("0.4 GiB for CUDAGraph", "0.0 GiB for CUDAGraph").replace("pool memory: 0.4", "x"))
    assert told.graphs == 0 and told.activations == pytest.approx(3.87 * GIB, abs=2)


def test_graphs_that_took_more_than_was_set_aside_do_not_make_the_rest_negative():
    told = read(TODAY.replace("took 0.40 GiB", "took 0.90 GiB"))
    assert told.overhead == 0 and [told.graphs, told.set_aside] == gib(0.90, 0.70)
    assert within_share(told) == pytest.approx(128.62 * GIB, abs=9)


def test_graphs_beside_the_share_as_an_h200_printed_them():
    told = read(H200)
    assert parts(told) == gib(5.27, 1.13, 0.92, 0.22, 122.0, 139.8)
    assert told.set_aside < 0.01 * GIB and within_share(told) == pytest.approx(128.62 * GIB, abs=9)
    assert (told.kv_tokens, told.context, told.concurrency) == (2284352, 32768, 69.71)


def test_a_cache_of_fixed_size_leaves_the_rest_unknown():
    line = "Initial free memory 138.27 GiB, reserved 1.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes"
    told = read(line)
    assert told == EngineMemory(kv_bytes=GIB)


def test_of_several_devices_the_fullest_counts():
    told = read("Model loading took 7.1 GiB memory and 1 seconds\nModel loading took 7.3 GiB memory and 1 seconds\n"
                "Available KV cache memory: 3.5 GiB\nAvailable KV cache memory: 3.25 GiB")  # fmt: skip
    assert (told.weights, told.kv_bytes) == (int(7.3 * GIB), int(3.25 * GIB))


def test_a_real_start_on_the_processor():
    """The log of vLLM 0.32 that is kept here."""
    told = read((DATA / "healthy_engine.log").read_text())
    assert told == EngineMemory(kv_bytes=GIB, kv_tokens=23296, context=2048, concurrency=11.38)


def test_other_lines_say_nothing():
    printed = Printed()
    assert printed.take("Free memory on device cuda:0 (1.2/139.8 GiB) on startup is less than desired") is None
    assert printed.take("Model loading took 1.2.3 GiB") == EngineMemory()


def test_the_run_keeps_it_and_it_survives_a_file():
    run = EngineRun()
    run.apply(decode(encode(read(TODAY))))
    assert run.memory == read(TODAY)
