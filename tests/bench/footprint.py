"""What a child process used, told to its parent as the last line of its output. Standard library only."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MARK = "footprint "


def peak_bytes() -> int:
    """The most memory this process ever held. getrusage would count the parent's own peak in, which exec hands on."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell a process's peak memory")


@contextmanager
def measured() -> Iterator[dict[str, Any]]:
    """Enter it when everything is imported. What is put into the dict is told along with seconds and bytes."""
    told: dict[str, Any] = {}
    bare, cpu, wall = peak_bytes(), time.process_time(), time.monotonic()
    yield told
    told |= {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.monotonic() - wall,
        "bare_bytes": bare,
        "bytes": peak_bytes() - bare,
    }
    print(f"\n{MARK}{json.dumps(told)}", flush=True)


def told_in(output: str) -> dict[str, Any]:
    """What a child told; raises ValueError where it ended before that."""
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    raise ValueError("the child told nothing")
