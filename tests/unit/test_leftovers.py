"""H20 (b): window and guard are killed together; what is left is found by pid and start time, and nothing else."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import fake_engine
import pytest
import records

from workbench import guard, leftovers

APP = """
import asyncio, sys
from workbench import process
asyncio.run(process.run(sys.argv[1:], log=None, on_line=print, on_start=lambda pid: print(pid, flush=True)))
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def decoy():
    """A stranger with the same command line as the engine's grandchild."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "engine-part"])
    yield process
    process.kill()
    process.wait()


def wait_for(condition, within_s=10.0):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "too late"
        time.sleep(0.05)


@pytest.fixture
def app(tmp_path):
    """An application that runs the engine; with it the guard's pid and those of the engine's deaf tree."""
    pids = tmp_path / "pids"
    python = fake_engine.install(tmp_path, ("tree", str(pids), "engine-part"), ("sleep", 600))
    process = subprocess.Popen([sys.executable, "-c", APP, str(python), "serve"], stdout=subprocess.PIPE, text=True)
    guard_pid = int(process.stdout.readline())
    wait_for(pids.exists)
    tree = [int(pid) for pid in pids.read_text().split()]
    yield process, guard_pid, tree
    process.kill()
    process.communicate()
    for pid in tree:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_killed_window_alone_leaves_nothing(app):
    process, guard_pid, tree = app
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: guard.identity(guard_pid) is None, 10)
    assert [pid for pid in tree if guard.identity(pid)] == []
    assert list(leftovers.folder().iterdir()) == []


def test_leftovers_are_found_and_ended_and_a_decoy_survives(app, decoy):
    process, guard_pid, tree = app
    wait_for(lambda: records.name(tree))
    assert leftovers.find() == [], "a living guard's tree is no leftover"

    os.kill(process.pid, signal.SIGKILL)
    os.kill(guard_pid, signal.SIGKILL)
    # The guard's own child dies with it; those below stay.
    wait_for(lambda: sorted(each.pid for each in leftovers.find()) == sorted(tree))
    found = leftovers.find()
    assert all(abs(each.since - time.time()) < 60 for each in found)

    leftovers.end(found, grace_s=0.5)
    assert [pid for pid in tree if guard.identity(pid)] == []
    assert decoy.poll() is None
    assert leftovers.find() == [] and list(leftovers.folder().iterdir()) == []


def record(**content):
    path = leftovers.folder() / "one.json"
    path.write_text(json.dumps({"boot": guard.boot(), "guard": [2**22 + 1, 1, ""], "command": [], **content}))
    return path


def test_what_a_killed_tree_left_goes_at_the_next_look(tmp_path):
    folder, stranger = tmp_path / "lathe-old", tmp_path / "mine"
    folder.mkdir()
    stranger.mkdir()
    (folder / "socket").touch()
    path = record(processes=[], folder=str(folder), shared=[])
    assert leftovers.find() == []
    assert not folder.exists() and not path.exists()
    record(processes=[], folder=str(stranger), shared=[])
    assert leftovers.find() == [] and stranger.exists(), "only folders of our own name are removed"


def test_a_pid_given_to_another_process_is_not_touched(decoy):
    pid, started, command = guard.identity(decoy.pid)
    path = record(processes=[[pid, started - 1, command]])
    assert leftovers.find() == []
    assert not path.exists()
    leftovers.end([leftovers.Leftover(pid, started - 1, command)], grace_s=0.1)
    assert decoy.poll() is None


def test_a_record_of_another_boot_says_nothing(decoy):
    record(boot="another", processes=[guard.identity(decoy.pid)])
    assert leftovers.find() == []


def test_a_damaged_record_is_removed():
    path = leftovers.folder() / "one.json"
    path.write_text('{"boot": ')
    assert leftovers.find() == []
    assert not path.exists()
