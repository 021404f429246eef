"""Runs a coroutine for the command line so that every signal to stop ends its children first."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

INTERRUPTED = 130


def run_until_done(work: Coroutine[Any, Any, Any]) -> Any:
    """asyncio.run in which Ctrl+C, SIGTERM and a closed terminal cancel; then SystemExit(130)."""

    async def cancellable() -> Any:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise SystemExit(INTERRUPTED) from None
