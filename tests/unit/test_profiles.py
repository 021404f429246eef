"""Profiles kept by name: every field comes back, a damaged file is a sentence, and the command line reaches them."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from workbench.engine import command, lora, profiles_kept
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Adapter, Profile
from workbench.engine.separation import Leg, Separation
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError

FULL = Profile(
    Path("/models/m 1"), name="m", dtype="bfloat16", context=4096, memory_share=0.5, kv_gib=2.5, max_sequences=8,
    block_size=32, kv_dtype="fp8", batched_tokens=2048, prefix_cache=False, scheduling="priority", running="eager",
    attention="FLASH_ATTN", adapters=(Adapter("a", Path("/l/a")),), chat_template=Path("/t.jinja"),
    speculation=Speculation("draft_model", 3, Path("/d"), steps=((4, 3), (16, 1))), port=8100, extra=("--seed", "1"),
    tensor_parallel=2, pipeline_parallel=3, data_parallel=4, executor="ray", ray_address="head:6379",
    tool_parser="hermes", long_prefill=256,
)  # fmt: skip
FLAGS = frozenset({*command.FLAGS.values(), "--enable-lora", "--max-loras", "--max-lora-rank", "--seed"})
FLAGS |= {"--enable-auto-tool-choice", "--data-parallel-backend"}
GPU = EngineFacts("/usr/bin/python3", "0.32.0", None, False, FLAGS, True, None, ray=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


def test_every_field_comes_back():
    plain = Profile(FULL.model)
    assert all(
        getattr(FULL, each.name) != getattr(plain, each.name) for each in fields(Profile) if each.name != "model"
    )
    path = profiles_kept.keep(FULL, " my profile ")
    assert path.name == "my profile.json" and profiles_kept.load("my profile") == FULL
    assert profiles_kept.load(str(path)) == FULL
    assert [(kept.name, kept.chosen) for kept in profiles_kept.listing()] == [("my profile", FULL)]


def test_engines_apart_come_back_without_a_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = replace(FULL, port=0)
    given = Separation((Leg(one, (0, 1)), Leg(url="http://a:1")), (Leg(replace(one, model=Path("m"))),), 8100, "secret")
    path = profiles_kept.keep(given, "apart")
    assert "secret" not in path.read_text()
    kept = profiles_kept.load("apart")
    assert kept.prefill == given.prefill and (kept.port, kept.key) == (8100, "")
    assert kept.decode[0].profile == replace(one, model=tmp_path / "m")


def test_a_name_is_taken_only_once_unless_asked():
    profiles_kept.keep(FULL, "one")
    with pytest.raises(WorkbenchError, match="already"):
        profiles_kept.keep(Profile(Path("/other")), "one")
    profiles_kept.keep(Profile(Path("/other")), "one", overwrite=True)
    assert profiles_kept.load("one").model == Path("/other")
    profiles_kept.remove("one")
    assert profiles_kept.listing() == ()
    for call in (profiles_kept.remove, profiles_kept.load):
        with pytest.raises(WorkbenchError, match="no profile called one"):
            call("one")


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("{", "cannot be read"),
        ('{"model": "/m", "contxt": 1}', "contxt"), ('{"model": "/m", "context": "x"}', "context"),
        ('{"model": "/m", "speculation": {"tokenz": 1}}', r"speculation\.tokenz"), ("{}", "model"),
        ('{"model": "/m", "kv_dtype": "int2"}', "KV cache type cannot be int2"),
        ('{"prefill": [{"url": "http://a:1"}]}', "decode"), ('{"prefill": [], "decode": []}', "an engine each"),
        ('{"prefill": [{"url": "http://a:1", "gpus": [1]}], "decode": [{"url": "http://b:1"}]}', r"prefill\.0\.gpus"),
        ('{"prefill": [{"url": "http://a:1"}], "decode": [{}]}', "either a profile or the URL"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_says_where(tmp_path, stored, said):
    path = profiles_kept.keep(FULL, "good").with_name("bad.json")
    path.write_text(stored)
    with pytest.raises(WorkbenchError, match=said) as caught:
        profiles_kept.load("bad")
    assert caught.value.hint
    assert [(kept.name, kept.chosen is None) for kept in profiles_kept.listing()] == [("bad", True), ("good", False)]


def test_relative_folders_are_kept_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    profiles_kept.keep(Profile(Path("m")), "here")
    assert profiles_kept.load("here").model == tmp_path / "m"


@pytest.fixture
def adapter(tmp_path):
    def write(name="adapter", **config):
        folder = tmp_path / name
        folder.mkdir()
        (folder / lora.CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 12} | config))
        return Adapter(name, folder)

    return write


def test_each_field_becomes_its_flag(adapter):
    full = replace(FULL, data_parallel=1)  # goes with draft tokens by load
    told = command.build(replace(full, adapters=(adapter("x"), adapter("y", r=40))), 8000, "", GPU).argv
    text = " ".join(told)
    for part in (
        "--kv-cache-dtype fp8", "--max-num-batched-tokens 2048", "--no-enable-prefix-caching", "--enforce-eager",
        "--scheduling-policy priority", "--attention-backend FLASH_ATTN", "--chat-template /t.jinja", "--seed 1",
        "--enable-lora --max-loras 2 --max-lora-rank 64", "--gpu-memory-utilization 0.5", "--block-size 32",
    ):  # fmt: skip
        assert part in text, part
    first = told.index("--lora-modules") + 1
    assert [json.loads(each)["name"] for each in told[first : first + 2]] == ["x", "y"]


def test_how_the_code_runs():
    def argv(running, facts=GPU):
        return " ".join(command.build(Profile(FULL.model, running=running), 8000, "", facts).argv)

    cpu = replace(GPU, cpu=True)
    assert "eager" not in argv("auto") + argv("compile") + argv("compile", cpu)
    assert "--enforce-eager" in argv("eager") and "--enforce-eager" in argv("auto", cpu)
    assert '--compilation-config {"mode": 0' in argv("graphs")
    with pytest.raises(WorkbenchError, match="need a GPU"):
        argv("graphs", cpu)


def test_what_an_engine_cannot_take_is_told_with_the_reason():
    assert command.missing(GPU) == {}
    old = replace(GPU, version="0.9.0", flags=FLAGS - {"--attention-backend"})
    assert {name: str(reason) for name, reason in command.missing(old).items()} == {
        "attention": "vLLM 0.9.0 does not know --attention-backend."
    }
    assert list(command.missing(replace(GPU, cpu=True))) == ["memory_share"]
    with pytest.raises(WorkbenchError, match="does not know --attention-backend"):
        command.build(Profile(FULL.model, attention="X"), 8000, "", old)


@pytest.mark.parametrize(
    ("config", "said"),
    [({"r": "many"}, "no LoRA adapter"), ({"peft_type": "IA3"}, "no LoRA adapter"), ({"r": 1024}, "rank 1024")],
)
def test_an_adapter_that_cannot_be_served_is_a_sentence(adapter, config, said):
    profile = Profile(FULL.model, adapters=(adapter(**config),))
    with pytest.raises(WorkbenchError, match=said):
        command.build(profile, 8000, "", GPU)
    with pytest.raises(WorkbenchError, match="no LoRA adapter"):
        lora.rank_of(Path("/nowhere"))


def test_two_models_of_one_name_are_refused():
    with pytest.raises(WorkbenchError, match="Two models would be called m"):
        Profile(Path("/m"), adapters=(Adapter("m", Path("/l")),))


def lathe(tmp_path, *arguments, **options):
    env = {**os.environ, "LATHE_HOME": str(tmp_path / "home"), "LATHE_LANGUAGE": "en"}
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", *map(str, arguments)], capture_output=True, text=True, timeout=60,
        env=env, **options,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_keeps_shows_and_exports(tiny, tmp_path):
    code, out, err = lathe(tmp_path, "serve", tiny, "--context", 64, "--speculate", "ngram", "--keep", "small")
    assert code == 0 and "small.json" in out.replace("\n", ""), err
    assert profiles_kept.load("small") == Profile(tiny, context=64, speculation=Speculation())
    listed = json.loads(lathe(tmp_path, "profiles", "--json")[1])
    assert [(each["profile_name"], each["context"]) for each in listed] == [("small", 64)]

    shown = lathe(tmp_path, "serve", "--profile", "small", "--show")[1]
    assert "--max-model-len 64" in shown and "ngram" in shown
    changed = lathe(tmp_path, "serve", "--profile", "small", "--context", 96, "--speculate", "off", "--show")[1]
    assert "--max-model-len 96" in changed and "ngram" not in changed

    exported = yaml.safe_load(lathe(tmp_path, "serve", "--profile", "small", "--export", "compose")[1])
    assert " ".join(exported["services"]["vllm"]["command"]) in shown.replace("'", "")
    assert "ExecStart=" in lathe(tmp_path, "serve", "--profile", "small", "--export", "systemd")[1]
    assert lathe(tmp_path, "serve", "--profile", "small", "--export", "helm")[0] == 1
    assert lathe(tmp_path, "profiles", "--remove", "small")[0] == 0 and profiles_kept.listing() == ()
    code, _, err = lathe(tmp_path, "serve")
    assert code == 1 and "nothing to serve" in err


def test_the_command_line_takes_an_old_command(tiny, tmp_path):
    text = f"vllm serve {tiny} --scheduler-policy priority --swap-space 4"
    code, out, err = lathe(tmp_path, "profiles", "--from-command", "-", "--name", "old", input=text)
    assert code == 0, err
    assert "--scheduling-policy today" in out and "--swap-space is gone" in out
    assert profiles_kept.load("old") == Profile(tiny, scheduling="priority")
