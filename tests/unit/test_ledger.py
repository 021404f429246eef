"""Who holds memory and whether more fits: the arithmetic, the files, and several processes at once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from workbench import guard, ledger, memory, paths
from workbench.book import balanced
from workbench.memory import Measured, Room

GB = 10**9


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


def machine(free=10 * GB, used=None, **rooms) -> Measured:
    return Measured({"cpu": Room("CPU", 24 * GB, free), **rooms}, used or {})


def entered(kind="engine", name="m", needs=None, root=0, **changes) -> ledger.Entry:
    entry = ledger.new(kind, name, {"cpu": 4 * GB} if needs is None else needs)
    return replace(entry, root=(root, 1) if root else (0, 0), **changes)


# -- the arithmetic


def test_what_is_stated_and_not_taken_yet_is_not_free():
    book = balanced([entered(root=7)], machine(used={7: {"cpu": GB}}))
    assert book.held[0].pending == {"cpu": 3 * GB}
    assert book.left("cpu") == 7 * GB
    assert book.shortage({"cpu": 7 * GB}) is None
    short = book.shortage({"cpu": 8 * GB})
    assert (short.device, short.missing, short.left) == ("cpu", GB, 7 * GB)
    assert short.standing[0].gives("cpu") == 4 * GB


def test_who_takes_more_than_it_stated_owes_nothing_and_gives_all_of_it_back():
    book = balanced([entered(root=7)], machine(used={7: {"cpu": 6 * GB}}))
    assert book.held[0].pending == {"cpu": 0}
    assert book.left("cpu") == 10 * GB
    assert book.held[0].gives("cpu") == 6 * GB


def test_who_has_not_begun_will_take_all_of_it():
    assert balanced([entered()], machine()).left("cpu") == 6 * GB


def test_each_that_is_enough_alone_can_be_stopped_else_all_together():
    small, large = entered(name="small", needs={"cpu": 2 * GB}), entered(name="large", needs={"cpu": 5 * GB})
    book = balanced([small, large], machine())
    names = [[held.entry.name for held in stop] for stop in book.shortage({"cpu": 5 * GB}).stops]
    assert names == [["large"], ["small"]]
    names = [[held.entry.name for held in stop] for stop in book.shortage({"cpu": 7 * GB}).stops]
    assert names == [["large"]]
    names = [[held.entry.name for held in stop] for stop in book.shortage({"cpu": 9 * GB}).stops]
    assert names == [["large", "small"]]


def test_a_gpu_is_a_device_of_its_own_and_the_worst_one_is_told():
    gpu = Room("H200", 140 * GB, 20 * GB)
    book = balanced(
        [entered(needs={"gpu0": 120 * GB}, root=7)], machine(used={7: {"cpu": GB, "gpu0": 120 * GB}}, gpu0=gpu)
    )
    assert book.shortage({"cpu": 10 * GB}) is None
    short = book.shortage({"cpu": 11 * GB, "gpu0": 30 * GB})
    assert (short.device, short.missing) == ("gpu0", 10 * GB)
    assert book.shortage({"gpu7": GB}) is None, "a device that is not here is nobody's"


def test_where_the_driver_does_not_tell_whose_it_is_what_is_in_use_counts_as_taken():
    used = {7: {"cpu": GB}}
    entry = entered(needs={"gpu0": 60 * GB}, root=7)
    loading = balanced([entry], machine(used=used, gpu0=Room("GPU", 80 * GB, 65 * GB, untold=15 * GB)))
    assert loading.left("gpu0") == 20 * GB
    loaded = balanced([entry], machine(used=used, gpu0=Room("GPU", 80 * GB, 20 * GB, untold=60 * GB)))
    assert loaded.left("gpu0") == 20 * GB
    assert "gpu0" not in loaded.held[0].used, "nothing is shown that nobody told"
    crowded = balanced([entry], machine(used=used, gpu0=Room("GPU", 80 * GB, 5 * GB, untold=75 * GB)))
    assert crowded.left("gpu0") == 5 * GB, "more in use than was stated makes no room"


def test_without_those_that_end_there_is_their_room():
    entry = entered(root=7)
    book = balanced([entry], machine(used={7: {"cpu": 3 * GB}}))
    assert book.left("cpu") == 9 * GB
    assert book.without({entry.id}).left("cpu") == 13 * GB


# -- the files


def test_a_claim_that_fits_is_seen_and_goes():
    entry = ledger.new("engine", "m", {"cpu": 4 * GB})
    assert ledger.claim(entry, machine()) == (True, None)
    assert ledger.entries() == [entry]
    ledger.begun(entry, os.getpid())
    assert ledger.entries()[0].root[0] == os.getpid()
    ledger.release(entry)
    assert ledger.entries() == []


def test_a_claim_beside_another_is_refused_unless_it_shall_be_anyway():
    ledger.claim(ledger.new("engine", "first", {"cpu": 8 * GB}), machine())
    second = ledger.new("quantize", "second", {"cpu": 4 * GB})
    done, short = ledger.claim(second, machine())
    assert not done and short.standing[0].entry.name == "first"
    assert len(ledger.entries()) == 1
    done, short = ledger.claim(second, machine(), anyway=True)
    assert done and short.missing == 2 * GB
    assert len(ledger.entries()) == 2


def test_where_nobody_stands_in_the_way_an_estimate_stops_nobody():
    done, short = ledger.claim(ledger.new("engine", "m", {"cpu": 40 * GB}), machine())
    assert done and short.missing == 30 * GB and not short.standing


def test_a_device_where_others_hold_nothing_has_nobody_in_the_way():
    ledger.claim(ledger.new("engine", "m", {"gpu0": 8 * GB}), machine(gpu0=Room("GPU", 80 * GB, 80 * GB)))
    done, short = ledger.claim(ledger.new("quantize", "m", {"cpu": 40 * GB}), machine())
    assert done and short.device == "cpu"


def test_what_a_dead_owner_left_is_removed():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    owner = tuple(guard.identity(child.pid)[:2])
    child.wait()
    for changes in ({"owner": owner}, {"owner": (os.getpid(), 1)}):
        ledger.claim(replace(ledger.new("engine", "m", {}), **changes), machine())
    assert len(list((paths.home() / "ledger").glob("*.json"))) == 2 - 1  # each claim looked and removed the one before
    assert ledger.entries() == []
    assert not list((paths.home() / "ledger").glob("*.json"))


def test_what_another_machine_that_shares_the_folder_entered_stays_and_counts_nothing():
    there = replace(ledger.new("engine", "m", {"cpu": GB}), boot="another")
    ledger.claim(there, machine())
    file = paths.home() / "ledger" / f"{there.id}.json"
    assert ledger.entries() == [] and file.exists()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"since": there.since - 2 * ledger.FORGOTTEN_S}))
    assert ledger.entries() == [] and not file.exists()


def test_an_entry_of_a_newer_lathe_counts():
    entry = ledger.new("engine", "m", {"cpu": GB})
    ledger.claim(entry, machine())
    file = paths.home() / "ledger" / f"{entry.id}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"more": 1}))
    assert ledger.entries() == [entry]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        "{",
        "[]",
        "{}",
        '"text"',
        "\xff",
        '{"id": "x"}',
        '{"needs": 1}',
        json.dumps({"id": 1, "extra": 2}),
    ],
)
def test_an_entry_that_cannot_be_read_is_removed_and_hides_no_other(content):
    good = ledger.new("engine", "m", {"cpu": GB})
    ledger.claim(good, machine())
    bad = paths.home() / "ledger" / "bad.json"
    bad.write_text(content, encoding="latin-1")
    assert ledger.entries() == [good]
    assert not bad.exists()


def test_wrong_types_in_an_entry_are_a_damaged_entry():
    good = ledger.new("engine", "m", {"cpu": GB})
    ledger.claim(good, machine())
    file = paths.home() / "ledger" / f"{good.id}.json"
    stored = json.loads(file.read_text())
    for name, value in (("needs", [1]), ("owner", "me"), ("since", None), ("root", 7),
                        ("needs", {"cpu": float("inf")})):  # fmt: skip
        file.write_text(json.dumps(stored | {name: value}))
        assert ledger.entries() == []


RACE = """
import sys, time
from workbench import ledger
from workbench.memory import Measured, Room
entry = ledger.new("quantize", sys.argv[1], {"cpu": 6 * 10**9})
print("up", flush=True)
sys.stdin.readline()
done, short = ledger.claim(entry, Measured({"cpu": Room("CPU", 24 * 10**9, 10 * 10**9)}, {}))
print("in" if done else short.standing[0].entry.name, flush=True)
sys.stdin.readline()
"""


def test_of_two_processes_at_once_one_gets_the_memory_and_the_other_hears_of_it():
    children = [
        subprocess.Popen([sys.executable, "-c", RACE, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    try:
        for child in children:
            assert child.stdout.readline() == "up\n"
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        told = {name: child.stdout.readline().strip() for name, child in zip(("one", "two"), children, strict=True)}
        assert sorted(told.values()) in (["in", "one"], ["in", "two"]), told
        winner = next(name for name, word in told.items() if word == "in")
        assert [entry.name for entry in ledger.entries()] == [winner]
        assert told["two" if winner == "one" else "one"] == winner
        children[("one", "two").index(winner)].kill()
        children[("one", "two").index(winner)].wait()
        assert ledger.entries() == [], "what was killed holds nothing"
    finally:
        for child in children:
            child.kill()
            child.communicate()


# -- what is really held, and its end


def test_the_real_use_of_a_tree_is_measured():
    script = "import subprocess, sys; held = b'x' * 60_000_000; print('up', flush=True); sys.stdin.readline()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
    child = subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "up\n"
        found = memory.measure([child.pid])
        assert 60_000_000 < found.used[child.pid]["cpu"] < 120_000_000, "of the tree, not of its root alone"
        room = found.rooms["cpu"]
        assert 0 < room.free < room.total
    finally:
        child.communicate("\n")
    assert memory.measure([child.pid]).used[child.pid]["cpu"] == 0


def test_the_driver_tells_whose_memory_of_a_gpu_it_is_and_pids_of_elsewhere_mean_nothing(monkeypatch):
    """990,000,007 stands for a pid of the host, as a driver tells it inside a container."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        told = {child.pid: 100 * GB, os.getpid(): 5 * GB, 990_000_007: 7 * GB}
        monkeypatch.setattr(memory, "_gpus", lambda: [(Room("H200", 140 * GB, 20 * GB), told)])
        found = memory.measure([child.pid])
        assert found.used[child.pid]["gpu0"] == 100 * GB
        assert found.rooms["gpu0"].untold == 15 * GB
        told.pop(child.pid)
        found = memory.measure([child.pid])
        assert "gpu0" not in found.used[child.pid] and found.rooms["gpu0"].untold == 115 * GB
    finally:
        child.kill()
        child.wait()


async def test_what_runs_here_is_stopped_as_if_it_were_cancelled():
    async def work():
        entry = ledger.new("quantize", "m", {})
        ledger.claim(entry, machine())
        try:
            await asyncio.sleep(60)
        finally:
            ledger.release(entry)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    (entry,) = ledger.entries()
    ledger.stop(entry)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.entries() == []


async def test_to_stop_a_part_of_a_whole_stops_all_of_it():
    names, ended = ("prefill", "decode"), []

    async def part(name):
        entry = ledger.new("engine", name, {})
        ledger.claim(entry, machine())
        try:
            await asyncio.sleep(60)
        finally:
            ledger.release(entry)
            ended.append(name)

    async def whole():
        ledger.stand_together()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(part(name))

    task = asyncio.create_task(whole())
    await asyncio.sleep(0.05)
    ledger.stop(ledger.entries()[1])
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == sorted(names) and ledger.entries() == []


def test_what_runs_elsewhere_is_told_to_end_and_a_stranger_with_its_pid_is_not():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        entry = ledger.new("engine", "m", {})
        ledger.claim(entry, machine())
        ledger.begun(entry, child.pid)
        (known,) = ledger.entries()
        ledger.stop(replace(known, root=(child.pid, known.root[1] + 1)))
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        ledger.stop(known)
        assert child.wait(5) == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()


def test_a_full_disk_keeps_nobody_from_a_start(monkeypatch):
    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    entry = ledger.new("engine", "m", {"cpu": GB})
    monkeypatch.setattr(type(paths.home()), "write_text", full)
    assert ledger.claim(entry, machine()) == (True, None)
    ledger.begun(entry, os.getpid())
    ledger.release(entry)
