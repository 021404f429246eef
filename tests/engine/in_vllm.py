"""Runs scripts in a child that has imported vLLM, which takes longer than what most of them do there."""

import json
import os
import selectors
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ENV = {
    "LATHE_ENGINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # compiling takes longer than all that is tested here
}  # fmt: skip
LIMIT_S = 500


def run(script: str, out: Path, *args: str) -> tuple[dict[str, Any], str]:
    """The answers that a script of this folder wrote to `out`, and all that it printed."""
    child, log = _child(), out.with_suffix(".log")
    child.stdin.write(json.dumps([str(Path(__file__).with_name(script)), str(log), str(out), *args]) + "\n")
    child.stdin.flush()
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        status = child.stdout.readline() if waiting.select(LIMIT_S) else ""
    if not status:  # too late, or it could not import vLLM
        child.kill()
        _child.cache_clear()
    printed = log.read_text(errors="replace") if log.exists() else ""
    assert status == "0\n", (status, printed[-3000:])
    return json.loads(out.read_text()), printed


@cache
def _child() -> subprocess.Popen:
    """One for all tests; it ends with us, when its stdin closes."""
    script = Path(__file__).with_name("vllm_once.py")
    return subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
