"""What this machine's memory delivers at best, measured here: the highest that was ever seen of this processor."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from workbench import json_file, named_files, paths
from workbench.errors import WorkbenchError

BLOCK = 64 << 20  # bytes a thread reads in a pass; larger than its share of the caches
THREADS = 8
PASSES = 5  # at least: where a pass is slow, something else had its turn
MOST = 1e14  # bytes a second; above what any memory delivers, so a file that says more is damaged


@cache
def peak_bandwidth(processor: str) -> float | None:
    """Bytes a second that all threads read together; None where nothing could be measured.

    A machine that is busy with something else shows less than it can, never more: so the best of several short passes
    counts, and of all processes that ever measured here. Takes some 0.3 s, once a process.
    """
    threads = _threads()
    path = paths.home() / "bandwidth.json"
    known, now = _read(path), measured(threads)
    key = f"{processor}, {threads} threads"
    best = max(known.get(key, 0.0), now or 0.0)
    if best > known.get(key, 0.0):
        with suppress(WorkbenchError):  # a disk that takes it not is no reason to fail
            named_files.write(known | {key: best}, path)
    return best or None


def measured(threads: int, seconds: float = 0.12) -> float | None:
    """The best pass of those that `seconds` have room for, and of `PASSES`; None without the memory for it."""
    import numpy as np

    try:
        blocks = [np.ones(BLOCK // 4, np.float32) for _ in range(threads)]
    except MemoryError:
        return None
    best, passes = 0.0, 0
    with ThreadPoolExecutor(threads) as pool:
        end = time.perf_counter() + seconds
        while passes < PASSES or time.perf_counter() < end:
            passes += 1
            start = time.perf_counter()
            list(pool.map(np.max, blocks))  # numpy lets the other threads run meanwhile
            best = max(best, BLOCK * threads / (time.perf_counter() - start))
    return best or None


def _threads() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, THREADS)


def _read(path: Path) -> dict[str, float]:
    """What the file holds by processor and threads; what is damaged of it counts as none and is written anew."""
    try:
        stored: Any = json_file.read(path)
        return {name: float(value) for name, value in stored.items() if _is_bandwidth(value)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _is_bandwidth(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST
