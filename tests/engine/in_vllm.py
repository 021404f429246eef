"""Runs a script of this folder as a child that loads models into vLLM in its own process, one after another."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ENV = {
    "LATHE_ENGINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # compiling takes longer than all that is tested here
}  # fmt: skip
LIMIT_S = 500


def run(script: str, out: Path, *args: str) -> tuple[dict[str, Any], str]:
    """The answers that it wrote to `out`, and its stderr."""
    child = Path(__file__).with_name(script)
    done = subprocess.run(
        [sys.executable, str(child), str(out), *args],
        env=os.environ | ENV, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text()), done.stderr
