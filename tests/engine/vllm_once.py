"""Child of in_vllm: imports vLLM once, then runs each script that a line of stdin names in a fork of itself.

A line is JSON: [script, file for all that it prints, arguments…]; the answer is a line with its status. What a script
changes ends with its fork.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
import traceback

import rare_collection  # noqa: F401
import torch
from vllm import LLM, SamplingParams  # noqa: F401
from vllm.entrypoints.openai import api_server  # noqa: F401
from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors  # noqa: F401
from vllm.model_executor.models import llama  # noqa: F401
from vllm.v1.worker import cpu_worker  # noqa: F401

from workbench.guard import PR_SET_PDEATHSIG


def run(script: str, log: str, *args: str) -> None:
    """In the fork."""
    _end_with_parent()
    nothing, file = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for ours, theirs in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(ours, theirs)
    sys.argv = [script, *args]
    status = 1
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    _end_with_parent()
    assert torch.get_num_threads() == 1, "threads do not outlive a fork"
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    while line := sys.stdin.readline():
        if (pid := os.fork()) == 0:
            run(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers)


if __name__ == "__main__":
    main()
