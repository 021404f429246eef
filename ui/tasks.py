"""The owner of every coroutine of the window."""

import asyncio
from collections.abc import Callable, Coroutine

from workbench import admission
from workbench.admission import Ask


class Tasks:
    """Keeps tasks alive, takes their errors to one place, ends them all when the window closes.

    `ask` answers for what wants memory that others hold.
    """

    def __init__(self, report: Callable[[BaseException], None]):
        self._report = report
        self.ask: Ask = admission.anyway
        self._running: set[asyncio.Task] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine) -> asyncio.Task:
        """Run `work` on the running loop. Its error is reported; cancelling it is not an error."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def stop_all(self) -> None:
        """Cancel everything and return when all of it has ended, tasks started meanwhile included."""
        own = asyncio.current_task()
        while waiting := [task for task in self._running if task is not own]:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    def _on_done(self, task: asyncio.Task) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._report(error)
