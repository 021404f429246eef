"""The command as a systemd unit and as a compose file: accepted by their own checkers, the arguments unchanged."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from workbench.engine import command, exports
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Adapter, Profile
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError

FLAGS = frozenset({*command.FLAGS.values(), "--enable-lora", "--max-loras", "--max-lora-rank"})
FACTS = EngineFacts(sys.executable, "0.32.0", None, False, FLAGS, True, None)
ODD = "ünï 'quote' & 100%h $HOME ${X} \"two\" back\\slash"


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"r": 12, "peft_type": "LORA"}')
    return folder


@pytest.fixture
def chosen(tmp_path, adapter):
    model = tmp_path / ODD
    model.mkdir()
    return Profile(
        model, name="m 1", context=4096, kv_dtype="fp8", prefix_cache=False, scheduling="priority", running="graphs",
        attention="FLASHINFER", adapters=(Adapter("a=b", adapter),), chat_template=tmp_path / "t.jinja",
        speculation=Speculation(), batched_tokens=2048,
    )  # fmt: skip


def built(profile, facts=FACTS):
    return command.build(profile, 8000, "", facts)


def words_of(line):
    """An ExecStart as systemd reads it: quotes, then %% and $$ as one, which alone would mean something else."""
    assert re.fullmatch(r"([^%$]|%%|\$\$)*", line), line
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]


def test_the_unit_has_the_same_arguments_and_no_key(chosen):
    told = command.build(chosen, 8000, "secret-key", FACTS)
    text = exports.unit(chosen, told, FACTS)
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert tuple(words_of(line)) == told.argv
    assert "secret-key" not in text and "EnvironmentFile=%E/lathe/m-1.env" in text
    assert 'Environment="HF_HUB_OFFLINE=1"' in text and "TimeoutStopSec=30" in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_accepts_the_unit(chosen, tmp_path):
    file = tmp_path / "lathe-m.service"
    file.write_text(exports.unit(chosen, built(chosen), FACTS))
    assert (told := verified(file)) == "", told
    file.write_text(file.read_text().replace("Type=exec", "Type=unheard-of"))
    assert "unheard-of" in verified(file), "it would be told of a mistake"


def verified(file):
    """What systemd has to say against a user's unit; nothing where all is well."""
    env = {"XDG_RUNTIME_DIR": str(file.parent), "HOME": str(file.parent)}
    analyze = ["systemd-analyze", "verify", "--user", "--man=no", str(file)]
    done = subprocess.run(analyze, capture_output=True, text=True, env=env)
    return "\n".join(line for line in done.stderr.splitlines() if file.name in line) or "failed" * done.returncode


def test_a_line_break_is_refused(chosen, tmp_path):
    odd = replace(chosen, model=tmp_path / "a\nb")
    with pytest.raises(WorkbenchError, match="line break"):
        exports.unit(odd, built(odd), FACTS)


def test_compose_has_the_same_arguments(chosen, adapter):
    told = command.build(chosen, 8000, "secret-key", FACTS)
    text = exports.compose(chosen, told, FACTS)
    (service,) = yaml.safe_load(text)["services"].values()
    words = [word.replace("$$", "$") for word in (*service["entrypoint"], *service["command"])]
    assert words[1:] == list(told.argv[1:])
    assert "secret-key" not in text and service["environment"]["VLLM_API_KEY"].startswith("${LATHE_KEY:?")
    assert service["image"] == "vllm/vllm-openai:v0.32.0" and service["network_mode"] == "host"
    mounted = [each["target"].replace("$$", "$") for each in service["volumes"]]
    assert mounted == sorted([str(chosen.model), str(adapter), str(chosen.chat_template)])
    assert "LATHE_ENGINE" not in service["environment"]
    assert not re.search(r"(?<!\$)\$(?!\$)", text.replace("${LATHE_KEY", ""))


@pytest.mark.parametrize("cpu", [False, True])
def test_compose_passes_its_schema(chosen, tmp_path, cpu):
    profile = replace(chosen, running="auto") if cpu else chosen
    facts = replace(FACTS, cpu=cpu)
    file = tmp_path / "compose.yaml"
    file.write_text(exports.compose(profile, built(profile, facts), facts))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert ("deploy" in file.read_text()) is not cpu
    file.write_text(json.dumps({"services": {"vllm": {"imag": "x"}}}))
    assert subprocess.run(check, capture_output=True).returncode == 1, "it would be told of a mistake"


def test_relative_folders_are_written_whole(tmp_path, monkeypatch):
    from workbench.engine.profile import absolute

    monkeypatch.chdir(tmp_path)
    found = absolute(Profile(Path("m"), adapters=(Adapter("a", Path("l")),), chat_template=Path("t")))
    assert found.model == tmp_path / "m" and found.adapters[0].folder == tmp_path / "l"
    assert found.chat_template == tmp_path / "t"
