"""The command line as a user meets it: in a process of its own, its JSON, its sentences and its status."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import fake_engine
import psutil
import pytest
import tiny as maker

from workbench import settings


@pytest.fixture
def lathe(tmp_path):
    """Run `lathe` with arguments in an own home; its status, output and complaints."""

    def run(*arguments: str, **env: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "workbench.cli", *map(str, arguments)], capture_output=True, text=True, timeout=60,
            env={**os.environ, "LATHE_HOME": str(tmp_path / "home"), "LATHE_LANGUAGE": "en", **env},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


def test_inspect_gives_one_json_document(lathe, tiny):
    code, out, _ = lathe("inspect", tiny, "--json")
    model = json.loads(out)
    assert code == 0
    assert (model["layers"], model["kv_heads"], model["head_dim"]) == (2, 2, 32)


def test_a_plan_with_a_conflict_names_it_and_fails(lathe, tmp_path):
    """F-TINY's hidden size is 64: group 128 fits only what reads the MLP's 128 values. The path is H06's."""
    folder = maker.write(tmp_path / "模型 库" / "ünï 'quote' & co")
    code, out, _ = lathe("plan", folder, "--recipe", "layered", "--group-size", "128", "--json")
    plan = json.loads(out)
    assert code == 1 and not plan["runs"]
    named = {module for conflict in plan["conflicts"] for module in conflict["modules"]}
    assert named == {line["name"] for line in plan["linears"] if line["shape"][1] % 128}
    assert len(named) == 10  # q, k, v and gate, up of two layers; o reads 128


def test_an_error_is_a_sentence_and_a_next_step(lathe, tmp_path):
    code, out, err = lathe("inspect", tmp_path / "nothing")
    assert code == 1 and not out
    assert "There is no folder" in err and "Traceback" not in err
    assert len(err.strip().splitlines()) >= 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "{tiny}", "--figures", "{file}/x.csv"),
        ("watch", "http://127.0.0.1:9", "--figures", "{folder}"),
        ("plan", "{tiny}", "--bits", "5", "--save", "{file}/deep/recipe.json"),
        ("whatif", "{tiny}", "model.layers.0.mlp.down_proj", "--save", "{file}/recipe.json"),
        ("demo", "-o", "{file}/report"),
        ("queue", "{tiny}", "--recipe", "rtn", "-o", "{file}/results"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_place_that_takes_no_file_is_told_before_the_work(lathe, tiny, tmp_path, arguments):
    file = tmp_path / "file"
    file.write_text("")
    places = {"tiny": tiny, "file": file, "folder": tmp_path}
    code, out, err = lathe(*(each.format(**places) for each in arguments))
    told = " ".join(err.split())  # the terminal's line breaks are not meant
    assert code == 1 and not out
    assert re.search(r"(Not|Is) a directory\. Check the space and rights there\.$", told), err
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


def test_the_same_error_in_chinese(lathe, tmp_path):
    _, _, err = lathe("inspect", tmp_path / "nothing", LATHE_LANGUAGE="zh_CN")
    assert any("\u4e00" <= letter <= "\u9fff" for letter in err)


def test_a_reader_that_has_gone_is_no_error(lathe, tiny, tmp_path):
    line = shlex.join([sys.executable, "-m", "workbench.cli", "plan", str(tiny), "--json"]) + " | head -c 10"
    env = {**os.environ, "LATHE_HOME": str(tmp_path / "home")}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, timeout=60)
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_an_engine_loads_ends_everything(tiny, tmp_path, monkeypatch):
    """The engine is a stand-in that never gets ready; no child of it outlives the command."""
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    python = fake_engine.install(tmp_path, ("print", "loading"), ("sleep", 60))
    settings.save(settings.Settings(engine_python=str(python)))
    command = [sys.executable, "-m", "workbench.cli", "serve", str(tiny)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tree: list[psutil.Process] = []
    until_s = time.monotonic() + 30
    while not (tmp_path / "started.json").exists():
        assert child.poll() is None and time.monotonic() < until_s
        time.sleep(0.05)
    tree = psutil.Process(child.pid).children(recursive=True)
    assert len(tree) >= 2
    child.send_signal(signal.SIGINT)
    assert child.wait(12) == 130
    assert not psutil.wait_procs(tree, timeout=2)[1]


def test_serve_says_when_drafting_makes_the_engine_slower(tiny, tmp_path, monkeypatch):
    """The counters of the warm-up are not those of the user; the note comes on the first poll after it."""
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    pages = [
        f"vllm:spec_decode_num_drafts_total {drafts}\nvllm:spec_decode_num_draft_tokens_total {4 * drafts}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {accepted}\n"
        for drafts, accepted in ((2, 8), (502, 16))
    ]
    python = fake_engine.install(tmp_path, ("answer", "ours", pages))
    settings.save(settings.Settings(engine_python=str(python)))
    command = [sys.executable, "-m", "workbench.cli", "serve", str(tiny), "--speculate", "ngram"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    told = ""
    for line in child.stderr:  # ends with the test's own time limit where the note never comes
        told += line
        if "without." in told:
            break
    child.send_signal(signal.SIGINT)
    told += child.communicate(timeout=20)[1]
    assert " ".join(told.split()).count("Speculation is not helping: 0.4 % of the drafted tokens") == 1
