"""The figures of engines over time as one table of comma-separated values; the same for the window and the terminal."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any

from workbench.engine.monitor import DeviceSample
from workbench.runs import EngineRun

# Each record's columns, units in their names, by the columns of what was recorded.
SAMPLE = {
    "kv_usage_share": "kv_usage", "running_requests": "running", "waiting_requests": "waiting",
    "output_tokens_per_s": "tokens_per_s", "prompt_tokens_per_s": "prompt_per_s", "steps_per_s": "steps_per_s",
    "ttft_mean_s": "ttft_s", "queue_s": "queue_s", "between_tokens_s": "inter_token_s",
    "acceptance_share": "acceptance", "accepted_length_tokens": "mean_accepted",
    "acceptance_by_position_shares": "acceptance_by_position", "preemptions": "preempted",
    "prefix_hit_share": "prefix_hits", "external_tokens": "external_tokens",
}  # fmt: skip
STEP = {
    "core": "rank", "prefill_tokens": "prefill", "decode_tokens": "decode", "output_tokens": "output",
    "batch_requests": "requests", "running_requests": "running", "waiting_requests": "waiting",
    "preemptions": "preempted",
}  # fmt: skip
BLOCKS = {
    "core": "rank", "used_blocks": "used", "cached_free_blocks": "cached", "usable_blocks": "usable",
    "unfilled_token_slots": "unfilled",
}  # fmt: skip
REQUEST = {
    "queue_s": "queue_s", "first_token_after_queue_s": "first_s", "between_tokens_s": "between_s",
    "output_tokens": "tokens",
}  # fmt: skip
DEVICE = {
    "load_share": "load", "memory_busy_share": "memory_busy", "memory_used_bytes": "memory_used",
    "memory_total_bytes": "memory_total", "power_w": "power_w",
}  # fmt: skip
COLUMNS = tuple(dict.fromkeys(("source", "record", "time_s", *SAMPLE, *STEP, *BLOCKS, *REQUEST, *DEVICE)))


def text(runs: Mapping[str, EngineRun], devices: Iterable[DeviceSample] = ()) -> str:
    """A line a record in the order of time, empty where nothing was measured.

    `source` names the engine as in `runs`, or the device; `record` is sample (of the engine's metrics, once a second),
    step, blocks, request or device. `time_s` counts from the first line. A step's `running_requests` are of its end.
    """
    rows = [row for name, run in runs.items() for row in _of_run(name, run)]
    rows += [row for sample in devices for row in _of_devices(sample)]
    rows.sort(key=lambda row: row["time_s"])
    first_s = rows[0]["time_s"] if rows else 0.0
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(row | {"time_s": f"{row['time_s'] - first_s:.4f}"})
    return out.getvalue()


def snapshot(runs: Mapping[str, EngineRun]) -> dict[str, EngineRun]:
    """The runs with columns of their own, which do not grow while a thread writes them as text."""
    return {
        name: replace(run, **{part: _copied(getattr(run, part)) for part in ("series", "steps", "blocks", "requests")})
        for name, run in runs.items()
    }


def _copied(columns: Any) -> Any:
    return replace(columns, **{each.name: copy(getattr(columns, each.name)) for each in fields(columns)})


def _of_run(name: str, run: EngineRun) -> Iterator[dict[str, Any]]:
    recorded = (
        ("sample", run.series, SAMPLE), ("step", run.steps, STEP), ("blocks", run.blocks, BLOCKS),
        ("request", run.requests, REQUEST),
    )  # fmt: skip
    for record, columns, names in recorded:
        values = (getattr(columns, attribute) for attribute in ("at_s", *names.values()))
        for at_s, *row in zip(*values, strict=True):
            yield {"source": name, "record": record, "time_s": at_s} | dict(zip(names, map(_cell, row), strict=True))


def _of_devices(sample: DeviceSample) -> Iterator[dict[str, Any]]:
    yield {
        "source": "CPU", "record": "device", "time_s": sample.at_s, "load_share": sample.cpu_load,
        "memory_used_bytes": sample.ram_used, "memory_total_bytes": sample.ram_total,
    }  # fmt: skip
    for index, gpu in enumerate(sample.gpus):
        values = {name: _cell(getattr(gpu, attribute)) for name, attribute in DEVICE.items()}
        yield {"source": f"GPU {index} {gpu.name}", "record": "device", "time_s": sample.at_s} | values


def _cell(value: Any) -> Any:
    """None is an empty cell; several values are parted by spaces."""
    return " ".join(f"{each:.4g}" for each in value) if isinstance(value, tuple) else value
