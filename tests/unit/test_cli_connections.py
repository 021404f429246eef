"""A running server at the command line: connect, keep, chat and compare by address and by name, no key in sight."""

import json
import os
import subprocess
import sys

import pytest
from fake_server import FakeServer, answer

from workbench import cli_connections, cli_engine, keys
from workbench.engine import connections
from workbench.engine.connections import Connection

KEY = "sk-very-secret"
PAGE = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def lathe(home):
    def run(*arguments: str, **env: str) -> tuple[int, str, str]:
        names = {
            "LATHE_HOME": str(home),
            "LATHE_LANGUAGE": "en",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }
        done = subprocess.run(
            [sys.executable, "-m", "workbench.cli", *map(str, arguments)], capture_output=True, text=True, timeout=60,
            env={**os.environ, **names, **env},
        )  # fmt: skip
        assert KEY not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


def test_connect_keep_list_chat_and_forget(lathe, home):
    with FakeServer(answer("Good", " day"), key=KEY, models=("big", "small"), metrics=PAGE) as server:
        code, _, err = lathe("connect", server.url)
        assert code == 1 and "asks for a key" in err and "Traceback" not in err
        code, out, err = lathe(
            "connect", f"{server.url}/v1/", "--name", "work", "--key-from-env", "WORK_KEY", "--model", "small",
            "--json", WORK_KEY=KEY,
        )  # fmt: skip
        found = json.loads(out)
        assert code == 0 and found["model"] == "small" and found["models"] == ["big", "small"]
        assert (found["vllm"], found["running"], found["waiting"], found["kv_usage"]) == (True, 2.0, None, 0.25)
        assert "no keyring" in err  # said, not kept
        kept = {"name": "work", "url": server.url, "model": "small"}
        assert json.loads(lathe("connections", "--json")[1]) == [kept]
        assert not any(KEY in path.read_text() for path in home.rglob("*") if path.is_file())

        code, out, err = lathe("connect", "work", LATHE_KEY=KEY)
        assert code == 1 and "asks for a key" in err  # that variable is of --key, which this command has not
        code, out, err = lathe("chat", "work", "hello", LATHE_KEY=KEY)
        assert code == 0 and out.startswith("Good day")
        assert server.requests[-1]["model"] == "small"
        code, out, _ = lathe("connect", server.url, "--key-from-env", "K", K=KEY)
        assert code == 0 and "vLLM at" in out and "Running 2, waiting –, KV cache 25 %" in out and "→ big" in out
    code, _, err = lathe("chat", "work", "hello", LATHE_KEY=KEY)
    assert code == 1 and "Nothing listens" in err
    assert lathe("connections", "--remove", "work")[0] == 0
    assert json.loads(lathe("connections", "--json")[1]) == []
    code, _, err = lathe("connect", "work")
    assert code == 1 and "no connection called work" in err


def test_a_key_that_is_given_takes_the_place_of_the_kept_one(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path))
    monkeypatch.setenv("NEW", KEY)
    monkeypatch.setattr(keys, "_ring", lambda: None)
    with FakeServer(key=KEY) as server:
        connections.keep(Connection("work", server.url))
        keys.save("work", "the one before")
        cli_connections.connect("work", name="work", variable="NEW")
    assert "→ fake" in capsys.readouterr().out
    assert keys.load("work") == KEY
    keys.forget("work")


def test_an_address_needs_no_scheme(monkeypatch, tmp_path):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path))
    assert cli_engine.connected("localhost:8000/v1").root == "http://localhost:8000"
    (tmp_path / "model:8").mkdir()
    assert cli_engine.connected(str(tmp_path / "model:8")) is None  # a folder
    assert cli_engine.connected("work") is None


def test_two_servers_are_compared(lathe):
    with FakeServer(answer("one", " two")) as first, FakeServer(answer("one", " three")) as second:
        second.strict = True  # one that is not vLLM
        first.listed = {"owned_by": "vllm"}
        code, out, err = lathe("compare", first.url, second.url, "--prompt", "count", "--json")
        assert code == 0, err
        (row,) = json.loads(out)
        assert row["original"]["text"] == "one two" and row["quantized"]["text"] == "one three"
        assert first.requests[0]["stream_options"]["continuous_usage_stats"]
        code, out, _ = lathe("compare", first.url, second.url, "--prompt", "count")
        assert code == 0 and "The same for 1 word" in out
