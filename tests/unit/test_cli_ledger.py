"""The ledger on the command line: listed, ended from there, refusals, waiting, and an idle engine's end."""

import json
import os
import signal
import subprocess
import sys
import time

import fake_engine
import psutil
import pytest

from workbench import cli_ledger, ledger, settings
from workbench.memory import Measured, Room

HUGE = 10**15  # more than any machine has: what states it leaves nothing to others
PAGE = (
    "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
    "vllm:prompt_tokens_total 3\nvllm:generation_tokens_total 7\n"
)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATHE_LANGUAGE", "en")
    settings.save(settings.Settings(engine_python=str(fake_engine.install(tmp_path, ("answer", "ours", [PAGE])))))


@pytest.fixture
def blocker():
    """An engine of this process that stated more than there is."""
    entry = ledger.new("engine", "blocker", {"cpu": HUGE})
    assert ledger.claim(entry, Measured({"cpu": Room("CPU", HUGE, HUGE)}, {}))[0]
    return entry


@pytest.fixture
def begin():
    """Start `lathe` with arguments; whatever still runs is interrupted after the test."""
    children = []

    def start(*arguments) -> subprocess.Popen:
        command = [sys.executable, "-m", "workbench.cli", *map(str, arguments)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield start
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)


def run(begin, *arguments) -> tuple[int, str, str]:
    child = begin(*arguments)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, " ".join(err.split())


def test_a_gpu_that_cannot_be_seen_from_here_is_listed_all_the_same(capsys):
    entry = ledger.new("engine", "far", {"gpu99": HUGE})
    assert ledger.claim(entry, Measured({}, {}))[0]
    cli_ledger.ledger()
    assert "gpu99" in capsys.readouterr().out
    cli_ledger.ledger(as_json=True)
    assert json.loads(capsys.readouterr().out)["held"][0]["stated"] == {"gpu99": HUGE}
    ledger.release(entry)


def read_until(stream, words) -> str:
    told = ""
    for line in stream:
        told += line
        if words in told:
            return told
    raise AssertionError(told)


def test_who_holds_what_is_one_json_document(begin, blocker):
    code, out, _ = run(begin, "ledger", "--json")
    book = json.loads(out)
    assert code == 0 and book["devices"]["cpu"]["left"] < 0 < book["devices"]["cpu"]["free"]
    (held,) = book["held"]
    assert (held["kind"], held["name"], held["owner"]) == ("engine", "blocker", os.getpid())
    assert held["stated"] == {"cpu": HUGE} and held["pid"] is None


def test_an_empty_ledger_says_so(begin):
    code, out, _ = run(begin, "ledger")
    assert code == 0 and "No job and no engine of Lathe holds memory." in out
    code, _, err = run(begin, "ledger", "--stop", "1")
    assert code == 1 and "no number 1" in err


def test_a_conflict_is_refused_with_who_and_what_helps(begin, blocker, tiny, tmp_path):
    code, _, err = run(begin, "serve", tiny)
    assert code == 1 and "Engine of blocker" in err and "--wait" in err and "--anyway" in err
    code, _, err = run(begin, "quantize", tiny, "-o", tmp_path / "out", "--group-size", "32")
    assert code == 1 and "Quantization of tiny needs" in err and "--wait" in err
    assert not (tmp_path / "started.json").exists()
    assert run(begin, "serve", tiny, "--wait", "--anyway")[0] == 1


def test_wait_begins_when_the_other_has_ended_and_is_listed_until_it_ends(begin, blocker, tiny, tmp_path):
    serving = begin("serve", tiny, "--wait")
    read_until(serving.stderr, "Waiting for memory")
    time.sleep(0.3)
    assert not (tmp_path / "started.json").exists()
    ledger.release(blocker)
    assert "http://127.0.0.1" in serving.stdout.readline()
    code, out, _ = run(begin, "ledger")
    assert code == 0 and "Engine of tiny" in out
    (entry,) = ledger.entries()
    tree = psutil.Process(entry.root[0]).children(recursive=True)
    assert tree
    assert run(begin, "ledger", "--stop", out.split()[out.split().index("Engine") - 1])[0] == 0
    assert serving.wait(15) == 1
    assert not psutil.wait_procs(tree, timeout=5)[1] and ledger.entries() == []


def test_anyway_begins_beside_and_a_killed_lathe_holds_nothing(begin, blocker, tiny):
    serving = begin("serve", tiny, "--anyway")
    assert "http://127.0.0.1" in serving.stdout.readline()
    assert len(ledger.entries()) == 2
    serving.kill()
    serving.wait()
    assert ledger.entries() == [blocker]


def test_an_idle_engine_ends_by_itself_and_says_why(begin, tiny):
    serving = begin("serve", tiny, "--unload-idle", "0.03")
    out, err = serving.communicate(timeout=40)
    assert serving.returncode == 0 and "http://127.0.0.1" in out
    assert "tiny had nothing to do for 0.03 minutes and is unloaded." in " ".join(err.split())
    assert ledger.entries() == []
