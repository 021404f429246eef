"""Imports vLLM once and loads each checkpoint it is told of in a child of its own, several side by side.

`python forked_engines.py` reads a line of JSON for each: {"folder", "prompt", "dtype", "out", "log", "options"}. The
child writes load_in_vllm's answer, or {"error"}, to `out`, all that is said to `log`, and where every thread stands
each STANDS_S seconds. The status of a child that dies is written as the error. Where a child of a process that has
imported vLLM cannot use the GPU, each checkpoint gets a process that imports it anew.
"""

import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

STANDS_S = 40
PROBE = "import torch\ntorch.zeros(1, device='cuda').item()"
# What every engine imports once it is configured; vLLM itself leaves it to the process that runs the model.
LATER = (
    "vllm.v1.engine.core", "vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu_model_runner",
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe",
    "vllm.model_executor.models.mixtral", "vllm.model_executor.models.deepseek_v2",
    "vllm.model_executor.models.qwen3_moe", "vllm.model_executor.models.qwen2_moe",
)  # fmt: skip


def prepare() -> None:
    """Import all that engines need, and let vLLM look at a model's class in the process itself: it would start a
    process for it that imports vLLM once more."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
    import load_in_vllm  # noqa: F401
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda look: look()
    if "cpu" in sys.argv:
        return
    for name in LATER:
        try:
            __import__(name)
        except Exception:
            traceback.print_exc()


def answer(order: dict) -> None:
    """Runs in a child: its output goes to the order's log from here on."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.dump_traceback_later(STANDS_S, repeat=True)
    from load_in_vllm import answer

    try:
        found = answer(order["folder"], order["prompt"], order["dtype"], **order["options"])
    except Exception as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"}
    tell(order, found)


def tell(order: dict, found: dict) -> None:
    part = Path(order["out"] + ".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(order["out"])


def in_child(work: Callable[[], None]) -> int:
    """The process id of a fork that does the work and ends."""
    if child := os.fork():
        return child
    try:
        work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def afresh(order: dict) -> None:
    command = [sys.executable, __file__, "one", *sys.argv[1:]]
    os.execve(command[0], command, os.environ | {"ORDER": json.dumps(order)})


def wait(child: int, order: dict) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not Path(order["out"]).exists():
        tell(order, {"error": f"ended with status {status}"})


def main() -> None:
    prepare()
    anew = "cpu" not in sys.argv and os.waitpid(in_child(lambda: exec(PROBE)), 0)[1] != 0
    print("vLLM is imported", "but for each anew" if anew else "", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        child = in_child(partial(afresh if anew else answer, order))
        threading.Thread(target=wait, args=(child, order), daemon=True).start()


if __name__ == "__main__":
    if "one" in sys.argv:
        prepare()
        answer(json.loads(os.environ["ORDER"]))
        os._exit(0)
    main()
