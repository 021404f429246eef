"""The figures as comma-separated values."""

import csv
import io

from workbench.core_events import BlockMap, RequestsDone, StepsDone
from workbench.engine.monitor import DeviceSample, GpuSample
from workbench.engine_events import EngineReady, EngineSample
from workbench.measure import table
from workbench.runs import EngineRun


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def some_run() -> EngineRun:
    run = EngineRun()
    run.apply(EngineReady("http://127.0.0.1:1", "k", "m", 1, 1.0))
    run.apply(EngineSample(10.0, running=1.0, generated_tokens=100.0))
    run.apply(EngineSample(11.0))
    run.apply(EngineSample(12.0, running=2.0, generated_tokens=160.0, drafts=10, draft_tokens=20, accepted_tokens=5))
    run.apply(
        StepsDone((11.5, 11.6), (7, 0), (0, 2), (1, 2), (1, 2), (1, 2), (3, 0), (0, 1), rank=1),
    )
    run.apply(BlockMap(11.6, 100, 40, 9, "", 16, 5))
    run.apply(RequestsDone((11.7,), (0.25,), (0.5,), (None,), (1,)))
    return run


def test_records_lie_in_time_with_units_and_gaps_are_empty():
    rows = read(table.text({"INT4": some_run()}))
    assert [(row["record"], row["time_s"]) for row in rows] == [
        ("sample", "0.0000"), ("sample", "1.0000"), ("step", "1.5000"), ("step", "1.6000"), ("blocks", "1.6000"),
        ("request", "1.7000"), ("sample", "2.0000"),
    ]  # fmt: skip
    first, gap, step, put_back, blocks, request, last = rows
    assert {row["source"] for row in rows} == {"INT4"}
    assert first["output_tokens_per_s"] == "" and first["running_requests"] == "1.0"
    assert gap["running_requests"] == gap["output_tokens_per_s"] == gap["kv_usage_share"] == ""
    assert last["output_tokens_per_s"] == "30.0" and last["acceptance_share"] == ""
    assert (step["prefill_tokens"], step["waiting_requests"], step["core"]) == ("7", "3", "1")
    assert put_back["preemptions"] == "1" and put_back["kv_usage_share"] == ""
    assert (blocks["used_blocks"], blocks["usable_blocks"], blocks["unfilled_token_slots"]) == ("40", "99", "5")
    assert (request["queue_s"], request["between_tokens_s"]) == ("0.25", "")


def test_two_engines_and_the_device_share_one_table():
    gpu = GpuSample("H200", 0.5, 10, 100, None, 0.25)
    rows = read(table.text({"a": some_run(), "b": some_run()}, [DeviceSample(9.0, 0.1, 5, 10, (gpu,))]))
    assert [row["source"] for row in rows[:4]] == ["CPU", "GPU 0 H200", "a", "b"]
    assert rows[0]["memory_busy_share"] == "" and rows[1]["memory_busy_share"] == "0.25"
    assert rows[1]["power_w"] == "" and rows[2]["time_s"] == "1.0000"


def test_acceptance_by_position_is_one_cell():
    run = EngineRun()
    for at_s, n in ((0.0, 0), (1.0, 1)):
        run.apply(EngineSample(at_s, drafts=10.0 * n, draft_tokens=20.0 * n, accepted_tokens=11.0 * n,
                               accepted_per_position=(8.0 * n, 3.0 * n)))  # fmt: skip
    assert read(table.text({"a": run}))[1]["acceptance_by_position_shares"] == "0.8 0.3"


def test_nothing_is_a_head_alone():
    assert table.text({}) == ",".join(table.COLUMNS) + "\n"


def test_a_snapshot_does_not_grow_with_its_run():
    run = EngineRun()
    run.apply(EngineReady("", "", "", 1, 1.0))
    run.apply(EngineSample(1.0, kv_usage=0.5))
    then = table.snapshot({"original": run})
    before = table.text(then)
    run.apply(EngineSample(2.0, kv_usage=0.5))
    assert table.text(then) == before != table.text({"original": run})
