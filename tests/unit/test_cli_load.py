"""`lathe load`: a running server by address and by name, a folder's own engine, and what is printed of either."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fake_engine
import psutil
import pytest
from fake_server import FakeServer, answer, delta
from typer.testing import CliRunner

from workbench import admission, cli, cli_load, keys, settings, terminal
from workbench.cli_load import levels_of
from workbench.engine import connections
from workbench.engine.connections import Connection
from workbench.engine.profile import Profile
from workbench.engine_events import EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Failed, Note

KEY = "sk-very-secret"
PAGE = 'vllm:num_requests_running{engine="0"} 0.0\n'
QUICK = ("--at", "1,2", "--requests", "2", "--answer-tokens", "3")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATHE_LANGUAGE", "en")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(keys, "_ring", lambda: None)
    return tmp_path / "home"


@pytest.fixture
def lathe(home):
    def run(*arguments):
        done = CliRunner().invoke(cli.app, ["load", *map(str, arguments)])
        assert KEY not in done.output
        return done

    return run


@pytest.fixture
def server():
    with FakeServer(answer("a", "b", "c", delay_s=0.01), models=["m"], metrics=PAGE, key=KEY) as server:
        server.pages["/version"] = (200, '{"version": "0.32.0"}', "application/json")
        server.listed = {"max_model_len": 512}
        yield server


def test_a_running_server_by_its_address(lathe, server):
    done = lathe(f"{server.url}/v1", "--key", KEY, *QUICK)
    assert done.exit_code == 0, done.output
    assert "m · vLLM 0.32.0 at http://127.0.0.1" in done.stdout and "1 at once:" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert [row[:4] for row in rows] == [["1", "2", "/", "2"], ["2", "4", "/", "4"]] and rows[0][4:6] == ["11,", "3"]
    assert "at once" in done.stdout and "knee" in done.stdout and "number that is new in every run" in done.stdout


def test_json_states_what_was_measured_and_with_what(lathe, server):
    connections.keep(Connection("work", server.url))
    told = json.loads(lathe("work", "--key", KEY, *QUICK, "--prompt-tokens", "50", "--json").stdout)
    assert told["server"] | {"lathe": ""} == {
        "url": server.url, "model": "m", "vllm": True, "version": "0.32.0", "context": 512, "lathe": "",
    }  # fmt: skip
    inputs = told["inputs"]
    assert (inputs["at"], inputs["requests"], inputs["prompt_tokens"], inputs["answer_tokens"]) == (
        [1, 2],
        [2, 4],
        50,
        3,
    )
    assert inputs["ignore_eos"] is True and inputs["temperature"] == 0 and told["engine"] is told["lost"] is None
    one, two = told["levels"]
    assert (one["answered"], two["answered"], two["failed"], two["reason"]) == (2, 4, 0, None)
    assert one["tokens_per_s"] == pytest.approx(6 / one["seconds"]) and one["answer_tokens"] == 3
    assert 0.005 < one["token_s"]["median"] <= one["token_s"]["p95"] < 1 and one["ttft_s"]["median"] > 0.01
    assert told["knee"]["at"] in (1, 2) and "knee" in told["knee"]["said"]
    assert time.time() - 60 < time.mktime(time.strptime(told["date"][:19], "%Y-%m-%dT%H:%M:%S"))


def test_a_dash_where_the_server_does_not_count(lathe, server):
    server.script = [(0, delta("a")), (0.01, delta("b", "stop")), (0, "data: [DONE]\n\n")]
    done = lathe(server.url, "--key", KEY, *QUICK)
    row = next(line for line in done.stdout.splitlines() if line.startswith("2 "))
    assert "–, –" in row and "knee" not in done.stdout


@pytest.fixture
def after_the_first(monkeypatch):
    """Calls what it is given when the first level is done."""

    def call(what):
        tell = terminal.JobProgress.__call__

        def take(progress, event):
            if isinstance(event, Note) and event.values["at"] == 1:
                what()
            tell(progress, event)

        monkeypatch.setattr(terminal.JobProgress, "__call__", take)

    return call


def test_failures_are_said_with_their_reason(lathe, server, after_the_first):
    server.body = '{"error": {"message": "too many"}}'
    after_the_first(lambda: setattr(server, "status", 429))
    done = lathe(server.url, "--key", KEY, *QUICK)
    assert done.exit_code == 0 and "0 / 4" in done.stdout
    assert "! At 2 at once 4 failed, the first: The engine refused the request: too many" in done.stdout


def test_a_server_that_is_lost_leaves_its_levels(lathe, after_the_first):
    server = FakeServer(answer("a"), models=["m"]).__enter__()
    after_the_first(server.__exit__)
    done = lathe(server.url, *QUICK, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1 and "Nothing listens" in str(done.exception)
    assert [each["whole"] for each in told["levels"]] == [True, False] and "Nothing listens" in told["lost"]
    assert told["levels"][1]["failed"] == 2 and told["levels"][1]["tokens_per_s"] is None


def test_a_folder_is_served_for_it(lathe, server, monkeypatch):
    started = []

    async def watched(profile, settings, on_event, log, ask):
        started.append((profile, ask))
        on_event(EngineReady(server.url, KEY, "m", 1, 1.0))
        try:
            await asyncio.sleep(60)
        finally:
            started.append("ended")

    monkeypatch.setattr(cli_load, "watched", watched)
    monkeypatch.setattr(cli_load, "profile_of", lambda model, *_: Profile(model))
    told = json.loads(lathe("m1", *QUICK, "--wait", "--json").stdout)
    assert told["engine"] == {"folder": "m1", "speculate": "off", "draft_tokens": 4} and len(told["levels"]) == 2
    (profile, ask), ended = started
    assert profile.model == Path("m1") and ask is admission.wait and ended == "ended"


@pytest.mark.parametrize("requests", [1, 3])
def test_why_its_own_engine_ended_is_said(lathe, monkeypatch, requests):
    """In the warm-up as well as later, and though the connection breaks before the cause is known."""
    server = FakeServer(answer("a", "b", delay_s=0.1), models=["m"]).__enter__()

    async def watched(profile, settings, on_event, log, ask):
        on_event(EngineReady(server.url, KEY, "m", 1, 1.0))
        while len(server.requests) < requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.__exit__)
        await asyncio.sleep(0.3)
        on_event(Failed("The engine ended with status {code}.", "Look there.", {"code": 9}))
        raise WorkbenchError("The engine ended with status {code}.", "Look there.", code=9)

    monkeypatch.setattr(cli_load, "watched", watched)
    monkeypatch.setattr(cli_load, "profile_of", lambda model, *_: Profile(model))
    done = lathe("m1", *QUICK, "--json")
    assert str(done.exception) == "The engine ended with status 9."
    assert requests == 1 or json.loads(done.stdout)["lost"] == "The engine ended with status 9."


def test_an_engine_that_answers_nothing_is_ended(lathe, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_load, "CAUSE_S", 0.1)
    settings.save(settings.Settings(engine_python=str(fake_engine.install(tmp_path, ("answer", "ours", [PAGE])))))
    done = lathe(tiny, *QUICK, "--anyway")
    assert done.exit_code == 1 and "The answer broke off" in str(done.exception) and not done.stdout
    port = fake_engine.logged(tmp_path)["argv"]
    port = port[port.index("--port") + 1]
    assert not [each for each in psutil.process_iter(["cmdline"]) if port in (each.info["cmdline"] or ())]


def test_ctrl_c_prints_the_levels_that_are_done(home, server):
    server.script = answer("a", delay_s=0.2)
    command = [sys.executable, "-m", "workbench.cli", "load", server.url, *QUICK, "--json"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LATHE_KEY": KEY}
    )
    for line in child.stderr:
        if "1 at once" in line:
            break
    server.script = [(60, delta("late"))]
    child.send_signal(signal.SIGINT)
    began_s = time.monotonic()
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130 and time.monotonic() - began_s < 5, err
    told = json.loads(out)
    assert told["levels"][0]["whole"] and told["lost"] is None and KEY not in out + err


def test_levels_are_numbers():
    assert levels_of("1, 32") == (1, 32)
    for wrong in ("", "a", "1,,2", "-1", "1.5", "999999"):
        with pytest.raises(WorkbenchError, match="no list of numbers"):
            levels_of(wrong)


def test_wrong_choices_are_said_before_anything_starts(lathe, server):
    assert "from 1 up" in str(lathe(server.url, "--at", "0").exception)
    assert "exclude each other" in str(lathe(server.url, "--wait", "--anyway").exception)
    assert not server.asked
