"""Children under the Qt loop: qasync drives asyncio's pipes and its watcher of children."""

import asyncio
import sys
import time
from itertools import pairwise

import pytest
import qasync

from workbench import guard, process

TREE = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "time.sleep(600)"
)


async def test_every_line_and_the_status_arrive():
    assert isinstance(asyncio.get_running_loop(), qasync.QEventLoop)
    lines = []
    code = "import sys\nfor n in range(20_000): print(n)\nsys.exit(3)"
    with pytest.raises(process.ProcessEnded) as ended:
        await process.run([sys.executable, "-c", code], log=None, on_line=lines.append)
    assert lines == [str(number) for number in range(20_000)]
    assert ended.value.code == 3


async def test_several_at_once_end_each_by_itself():
    seen = []
    code = "import sys, time; time.sleep(float(sys.argv[1])); print(sys.argv[1])"
    await asyncio.gather(
        *(
            process.run([sys.executable, "-c", code, wait], log=None, on_line=seen.append)
            for wait in ("0.6", "0.1", "0.3")
        )
    )
    assert sorted(seen) == ["0.1", "0.3", "0.6"]


async def test_cancelling_ends_the_tree_and_the_loop_goes_on_meanwhile(until):
    lines, ticks = [], []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.02)

    ticking = asyncio.create_task(tick())
    task = asyncio.create_task(process.run([sys.executable, "-c", TREE], log=None, on_line=lines.append, grace_s=1.0))
    await until(lambda: lines, 10)
    pids = [int(pid) for pid in lines[0].split()]
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 2
    assert [pid for pid in pids if guard.identity(pid)] == []
    ticking.cancel()
    gaps = [after - before for before, after in pairwise(ticks) if after > start]
    assert max(gaps) < 0.5, "the window stood still while the tree was ended"


async def test_a_program_that_does_not_exist_is_told_on_this_loop_too():
    with pytest.raises(process.WorkbenchError):
        await process.run(["/nowhere/python"], log=None, on_line=print)
