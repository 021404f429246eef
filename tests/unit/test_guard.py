"""The guard with real process trees: nothing of a tree outlives its window, whatever dies first."""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from workbench import guard

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A child with a grandchild in its own session that is deaf to SIGTERM; both pids are printed.
TREE = [
    sys.executable, "-c",
    "import subprocess, sys, os, time\n"
    "deaf = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); '\n"
    "deaf += 'time.sleep(600)'\n"
    "child = subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True, stdout=subprocess.PIPE)\n"
    "child.stdout.readline()\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "time.sleep(600)",
]  # fmt: skip


@pytest.fixture
def guarded(tmp_path):
    """Start a command under the guard, with its record and its temporary folder in tmp_path."""
    started = []
    folder = tmp_path / "lathe-own"

    def start(command, grace_s=0.5):
        folder.mkdir(exist_ok=True)
        record = str(tmp_path / "record.json")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(grace_s), record, str(folder), *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


def alive(pid):
    return guard.identity(pid) is not None


def gone(pids, within_s):
    end = time.monotonic() + within_s
    while any(map(alive, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def tree_of(process):
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    return pids


@pytest.mark.parametrize(
    ("ending", "status"), [("sys.exit(0)", 0), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)]
)
def test_the_status_is_the_childs(guarded, tmp_path, ending, status):
    process = guarded([sys.executable, "-c", f"import os, sys; {ending}"])
    assert process.wait(10) == status
    assert not (tmp_path / "record.json").exists()


def test_a_command_that_does_not_exist_is_named(guarded):
    process = guarded(["/nowhere/python"])
    assert process.wait(10) == 127
    assert "/nowhere/python" in process.stderr.read()


def test_a_closed_pipe_ends_the_whole_tree(guarded):
    process = guarded(TREE)
    pids = tree_of(process)
    process.stdin.close()
    process.wait(5)
    assert not any(map(alive, pids)), "the guard ended before its tree"


def test_sigterm_ends_the_whole_tree(guarded):
    process = guarded(TREE)
    pids = tree_of(process)
    process.terminate()
    process.wait(5)
    assert not any(map(alive, pids))


def test_a_grandchild_whose_parent_was_killed_is_ended_too(guarded):
    process = guarded(TREE)
    pids = tree_of(process)
    os.kill(pids[0], signal.SIGKILL)  # the head: the guard now cleans up by itself
    assert process.wait(5) == 137
    assert gone(pids, 0)


def test_killing_the_guard_kills_its_child(guarded):
    process = guarded([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"])
    pid = int(process.stdout.readline())
    process.kill()
    assert gone([pid], 2)


def test_the_child_may_end_by_itself_within_the_grace(guarded, tmp_path):
    mark = tmp_path / "cleaned"
    code = (
        "import signal, sys, time, pathlib\n"
        f"def end(*_): time.sleep(0.5); pathlib.Path({str(mark)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print(1, flush=True)\ntime.sleep(600)"
    )
    process = guarded([sys.executable, "-c", code], grace_s=5)
    process.stdout.readline()
    process.stdin.close()
    process.wait(5)
    assert mark.exists()


def test_the_record_names_the_tree_while_it_lives(guarded, tmp_path):
    process = guarded(TREE)
    pids = tree_of(process)
    record = tmp_path / "record.json"
    end = time.monotonic() + 3
    while time.monotonic() < end:
        content = json.loads(record.read_text()) if record.exists() else {"processes": []}
        if [each[0] for each in content["processes"]] == pids:
            break
        time.sleep(0.05)
    assert [each[0] for each in content["processes"]] == pids
    assert content["guard"][:2] == guard.identity(process.pid)[:2]
    assert content["processes"][1][1] == guard.identity(pids[1])[1]
    process.stdin.close()
    process.wait(5)
    assert not record.exists()


def test_temporary_files_and_shared_memory_go_with_the_tree(guarded, tmp_path):
    """H20: an engine that is killed leaves sockets in /tmp, and some hundred MB in /dev/shm."""
    folder = tmp_path / "lathe-own"
    code = (
        "import os, socket, time\n"
        "from multiprocessing import resource_tracker, shared_memory\n"
        "resource_tracker.register = lambda *_: None\n"  # as when the tracker is killed as well
        "held = shared_memory.SharedMemory(create=True, size=1000)\n"
        f"socket.socket(socket.AF_UNIX).bind({str(folder / 'socket')!r})\n"
        "print(held.name, flush=True)\n"
        "time.sleep(600)"
    )
    process = guarded([sys.executable, "-c", code])
    shared = Path("/dev/shm") / process.stdout.readline().strip()
    assert shared.exists() and (folder / "socket").exists()
    wait_until = time.monotonic() + 5
    while str(shared) not in (tmp_path / "record.json").read_text() and time.monotonic() < wait_until:
        time.sleep(0.05)
    os.kill(int(json.loads((tmp_path / "record.json").read_text())["processes"][0][0]), signal.SIGKILL)
    assert process.wait(5) == 137
    assert not shared.exists() and not folder.exists()


def test_shared_memory_that_another_holds_and_foreign_folders_stay(tmp_path):
    held = shared_memory.SharedMemory(create=True, size=1000)
    try:
        file = f"/dev/shm/{held.name}"
        guard.tidy({"folder": str(tmp_path), "shared": [file]})
        assert os.path.exists(file) and tmp_path.exists()
        guard.tidy({})
    finally:
        held.close()
        held.unlink()


def test_what_openmp_registered_goes_though_its_process_is_a_zombie():
    child = subprocess.Popen(SLEEP)
    file = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{child.pid}_{os.getuid()}")
    try:
        file.touch()
        assert guard.shared([child.pid]) == {str(file)}
        guard.tidy({"shared": [str(file)]})
        assert file.exists(), "its process lives"
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet taken notice of
        guard.tidy({"shared": [str(file)]})
        assert not file.exists()
    finally:
        child.kill()
        child.wait()
        file.unlink(missing_ok=True)


def test_children_are_the_same_both_ways():
    child = subprocess.Popen(SLEEP)
    try:
        assert child.pid in guard.children(os.getpid())
        assert sorted(guard.children(os.getpid())) == sorted(guard._children_by_parent(os.getpid()))
    finally:
        child.kill()
        child.wait()
