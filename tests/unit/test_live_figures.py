"""What the live panel says of blocks, requests, phases and bandwidth, from what engines recorded."""

import base64
import json
import struct
import zlib
from pathlib import Path

import numpy as np

from workbench.core_events import BlockMap
from workbench.engine.metrics import Rates
from workbench.engine.profile import Profile
from workbench.engine_events import EngineReady, EngineSample
from workbench.events import ReplyDone
from workbench.measure import bandwidth, blocks, requests, series
from workbench.measure.bandwidth import Reading
from workbench.measure.phases import phases
from workbench.measure.recorded import Requests
from workbench.runs import EngineRun


def map_of(*states: int, unfilled: int | None = 0, size: int | None = 16) -> BlockMap:
    data = bytes((BlockMap.NULL, *states))
    packed = base64.b64encode(zlib.compress(data)).decode()
    held = [state & 127 for state in states]
    return BlockMap(1.0, len(data), sum(map(bool, held)), 0, packed, size, unfilled)


def reply(ttft_s: float | None, tokens_per_s: float | None = None) -> ReplyDone:
    return ReplyDone("stop", ttft_s, ttft_s, 1.0, 1, 2, tokens_per_s)


def test_every_block_is_counted_once():
    refs, hashed = series.blocks(map_of(0, 0, BlockMap.HASHED, 1, 1 | BlockMap.HASHED, 2, 126 | BlockMap.HASHED))
    found = blocks.counts(refs, hashed)
    assert (found.free, found.cached, found.held, found.shared) == (2, 1, 2, 2)
    assert found.used == 4
    assert blocks.counts(np.zeros(0, np.uint8), np.zeros(0, bool)).used == 0


def test_waste_is_summed_over_the_cores_and_unknown_when_one_is():
    assert blocks.waste([map_of(1, 1, unfilled=5), map_of(2, 0, unfilled=7)]) == (12, 48)
    assert blocks.waste([map_of(1, unfilled=5), map_of(1, unfilled=None)]) is None
    assert blocks.waste([map_of(1, size=None)]) is None


def test_what_an_engine_recorded_counts_before_its_replies():
    recorded = Requests()
    for at_s, queue_s in ((3.0, 0.5), (1.0, None)):
        recorded.at_s.append(at_s)
        recorded.queue_s.append(queue_s)
        recorded.first_s.append(0.25)
        recorded.between_s.append(0.02)
        recorded.tokens.append(8)
    replies = [("original", reply(9.0)), ("quantized", reply(0.4, 50.0))]
    found = requests.points({"original": recorded, "quantized": Requests()}, replies)
    assert [(point.side, point.ttft_s, point.queue_s) for point in found] == [
        ("quantized", 0.4, None), ("original", None, None), ("original", 0.75, 0.5),
    ]  # fmt: skip
    assert found[0].between_s == 0.02
    assert requests.milliseconds(0.02) == 20 and requests.milliseconds(None) is None


def test_only_the_last_requests_are_kept():
    replies = [("original", reply(float(index))) for index in range(requests.MOST + 3)]
    found = requests.points({}, replies)
    assert len(found) == requests.MOST and found[-1].ttft_s == requests.MOST + 2


def test_phases_share_the_tokens_of_the_interval():
    assert phases(Rates(prompt_per_s=30.0, tokens_per_s=10.0)) == (("prefill", 0.75), ("decode", 0.25))
    assert phases(Rates()) == (("prefill", 0.0), ("decode", 0.0))


def running(*steps: float | None) -> EngineRun:
    run = EngineRun()
    run.apply(EngineReady("", "", "", 1, 1.0))
    for at_s, count in enumerate(steps):
        known = None if count is None else (count * 4, count)
        run.apply(EngineSample(float(at_s), kv_usage=0.5, kv_tokens=1000, steps=known))
    return run


def test_bandwidth_is_steps_times_what_a_step_reads():
    read = Reading(weights=1e6, per_token=100, peak=4e8)
    run = running(0, 100, 300)
    assert bandwidth.now(read, run) == 200 * (1e6 + 100 * 500)
    assert list(bandwidth.over_time(read, run)) == [200 * 1.05e6 / 4e8, 100 * 1.05e6 / 4e8, None]


def test_without_steps_after_a_restart_and_without_a_reading_there_is_no_bandwidth():
    read = Reading(1e6, 0, None)
    assert bandwidth.now(read, running(None, None)) is None
    assert bandwidth.now(read, running(0, 500, 3)) is None, "a counter that fell is a restarted engine"
    assert bandwidth.now(None, running(0, 100)) is None
    assert list(bandwidth.over_time(read, running(0, 100))) == [None, None], "no share of a peak that nobody knows"


def test_a_model_that_is_not_there_has_no_reading(tmp_path: Path):
    assert bandwidth.reading(Profile(tmp_path / "nothing")) is None


def test_a_step_reads_every_weight_once(tmp_path: Path):
    header = json.dumps(
        {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [1000, 64], "data_offsets": [0, 128_000]}}
    )
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(128_000))
    read = bandwidth.reading(Profile(tmp_path, dtype="bfloat16"))
    assert round(read.weights) == 128_000 and read.per_token == 2 * 2 * 2 * 16 * 2
    assert bandwidth.reading(Profile(tmp_path, dtype="bfloat16", data_parallel=2)) is None
