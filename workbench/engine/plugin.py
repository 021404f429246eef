"""Lathe's vLLM plugin: ends the engine with its parent, computes packed weights where no kernel does, tells of steps.

vLLM calls `register` in each of its processes, in every vLLM of this interpreter, so it sleeps unless our launcher
set LATHE_ENGINE. A failure here costs a feature, never the start of an engine.
"""

import ctypes
import multiprocessing
import os
import signal
import sys

from workbench.engine import plugin_words

SWITCH = "LATHE_ENGINE"
TAP = "LATHE_TAP"

_PR_SET_PDEATHSIG = 1


def register() -> None:
    """The entry point of `vllm.general_plugins`; may be called again in the same process."""
    if not os.environ.get(SWITCH):
        return
    for part in (_end_with_parent, _supply_kernel, _open_tap):
        try:
            part()
        except Exception as error:
            reason = f"{part.__name__}: {type(error).__name__}: {error}".replace("\n", " ")
            print(plugin_words.FAILED.format(reason=reason), file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however it went.

    vLLM's engine core and workers otherwise outlive a killed server and keep its memory (vllm #55510). The server
    itself is left out: the guard sets the same for it. The signal follows the parent's thread, which is the main
    thread in vLLM's core and executor.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # SIGKILL: a worker deep in a forward pass does not get to its SIGTERM handler in time.
    if libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # The parent may have died before the call, during our seconds of imports.
    if not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)


def _supply_kernel() -> None:
    """Offer our kernel for packed weights on the CPU; it refuses the layers that vLLM's own kernels can serve."""
    from vllm.platforms import PlatformEnum, current_platform

    if not current_platform.is_cpu():
        return
    from vllm.model_executor.kernels import linear

    from workbench.engine.kernel import UnpackedLinearKernel

    # `register_linear_kernel` only appends, and vLLM's own kernel accepts layers on which it then dies.
    kernels = linear._POSSIBLE_KERNELS[PlatformEnum.CPU]
    if UnpackedLinearKernel not in kernels:
        kernels.insert(0, UnpackedLinearKernel)


def _open_tap() -> None:
    """Have the engine core report its steps and blocks to our launcher, where that listens."""
    if not (path := os.environ.get(TAP)):
        return
    from vllm.config import SchedulerConfig

    from workbench.engine import plugin_scheduler

    plugin_scheduler.install(SchedulerConfig, path)
