"""process.run with real children: every line arrives, and cancelling leaves nothing."""

import asyncio
import os
import signal
import sys
import time

import psutil
import pytest
import records

from workbench import guard, leftovers, process
from workbench.errors import WorkbenchError

STUBBORN = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "time.sleep(600)"
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


async def lines_of(code, *arguments, **options):
    lines = []
    await process.run([sys.executable, "-c", code, *arguments], log=None, on_line=lines.append, **options)
    return lines


async def started(code, **options):
    """The running task and the pids that the child printed."""
    first = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(process.run([sys.executable, "-c", code], log=None, on_line=first.set_result, **options))
    return task, [int(pid) for pid in (await first).split()]


def alive(pids):
    return [pid for pid in pids if guard.identity(pid)]


async def test_lines_arrive_whole_whatever_ends_them():
    code = "import sys; sys.stdout.buffer.write('a\\r\\nü 模型\\n50%\\r100%\\n\\nlast'.encode())"
    assert await lines_of(code) == ["a", "ü 模型", "50%", "100%", "", "last"]


async def test_a_child_has_temporary_files_of_its_own_that_go_with_it(monkeypatch, tmp_path):
    code = (
        "import tempfile, os; print(tempfile.mkstemp()[1]); print(oct(os.stat(tempfile.gettempdir()).st_mode & 0o777))"
    )
    made, mode = await lines_of(code)
    assert mode == "0o700" and not os.path.exists(os.path.dirname(made))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 20)))
    assert len(os.path.dirname((await lines_of(code))[0])) < 30, "a Unix socket of an engine needs a short path"


async def test_a_child_can_name_itself_though_torch_sets_its_cache_anew():
    pytest.importorskip("setproctitle")
    code = (
        "import os; os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.environ['TORCHINDUCTOR_CACHE_DIR'] + '/'\n"
        "import setproctitle; setproctitle.setproctitle('VLLM::EngineCore')\n"
        "print(open('/proc/self/cmdline').read().split(chr(0))[0])"
    )
    assert await lines_of(code) == ["VLLM::EngineCore"]


async def test_long_lines_and_floods_lose_nothing():
    long, *many = await lines_of("print('x' * 3_000_000)\nfor n in range(50_000): print(n)")
    assert len(long) == 3_000_000
    assert many == [str(number) for number in range(50_000)]


async def test_a_line_beyond_the_limit_comes_in_pieces(monkeypatch):
    monkeypatch.setattr(process, "LINE_LIMIT", 200_000)
    pieces = await lines_of("print('x' * 1_000_000)")
    assert len(pieces) > 1 and "".join(pieces) == "x" * 1_000_000


async def test_stderr_goes_to_the_log_and_its_end_into_the_error(tmp_path):
    log = tmp_path / "logs" / "worker.log"
    with pytest.raises(process.ProcessEnded) as ended:
        await process.run(
            [sys.executable, "-c", "import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)"],
            log=log, on_line=lambda line: None,
        )  # fmt: skip
    assert (ended.value.code, ended.value.tail) == (3, ("why",))
    assert log.read_text() == "why\n"


async def test_merged_output_is_handed_over_and_kept(tmp_path):
    log, lines = tmp_path / "engine.log", []
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    await process.run([sys.executable, "-c", code], log=log, on_line=lines.append, merge_stderr=True)
    assert lines == ["out", "err"]
    assert log.read_text() == "out\nerr\n"


async def test_a_signal_counts_as_128_and_its_number():
    with pytest.raises(process.ProcessEnded) as ended:
        await lines_of("import os; os.kill(os.getpid(), 11)")
    assert ended.value.code == 139


async def test_an_interpreter_that_does_not_exist_is_a_sentence():
    with pytest.raises(WorkbenchError, match="/nowhere/python"):
        await process.run(["/nowhere/python"], log=None, on_line=print)


async def test_arguments_and_environment_arrive_exactly():
    text = "模型 库/ünï 'quote' & co/$HOME `id` \\ \"m1\" \n*"
    code = "import os, sys; print(ascii([sys.argv[1], os.environ['GIVEN']]))"
    for language in ("C", "C.UTF-8"):
        lines = await lines_of(code, text, env={"LC_ALL": language, "GIVEN": text})
        assert lines == [ascii([text, text])]


async def test_cancelling_ends_the_tree_before_it_returns():
    task, pids = await started(STUBBORN, grace_s=1.0)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(pids) == []
    assert time.monotonic() - start < 2
    assert list(leftovers.folder().iterdir()) == []


async def test_cancelling_again_and_again_does_not_cut_the_ending_short():
    task, pids = await started(STUBBORN, grace_s=0.5)
    for _ in range(10):
        task.cancel()
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(pids) == []


async def test_an_error_in_on_line_ends_the_child_and_is_told():
    pids = []

    def on_line(line):
        pids.extend(int(pid) for pid in line.split())
        raise ValueError("cannot read that")

    with pytest.raises(ValueError, match="cannot read that"):
        await process.run([sys.executable, "-c", STUBBORN], log=None, on_line=on_line, grace_s=0.2)
    assert pids and alive(pids) == []


async def test_when_the_guard_is_killed_the_rest_is_ended_from_its_record():
    guards = []
    task, pids = await started(STUBBORN, on_start=guards.append)
    await records.until_named(pids)
    os.kill(guards[0], signal.SIGKILL)
    with pytest.raises(process.ProcessEnded) as ended:
        await asyncio.wait_for(task, 10)
    assert ended.value.code == 137
    assert alive(pids) == []


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 10])
async def test_a_start_that_is_cancelled_half_way_leaves_no_process(turns):
    before = psutil.Process().children(recursive=True)  # Python's own resource tracker, for one
    code = [sys.executable, "-c", "import time; time.sleep(600)"]
    task = asyncio.create_task(process.run(code, log=None, on_line=print))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = set(psutil.Process().children(recursive=True)) - set(before)
    assert left == set()
