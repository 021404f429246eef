"""Set-up's command lines and the desktop entry, with programs that log what they are asked to do."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def set_up(tmp_path, monkeypatch):
    """The set-up script with an environment of its own, whose python logs its arguments and then succeeds.

    `python.fails` holds words: a call that contains one of them fails.
    """
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "packaging" / "set_up.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    python = tmp_path / "venv 环境" / "bin" / "python"
    python.parent.mkdir(parents=True)
    programs.write(
        python,
        f"import json, sys\nfrom pathlib import Path\nhere = Path({str(tmp_path)!r})\n"
        "with open(here / 'calls.jsonl', 'a') as log:\n    print(json.dumps(sys.argv[1:]), file=log)\n"
        "fails = (here / 'fails').read_text().split() if (here / 'fails').exists() else []\n"
        "sys.exit(any(word in sys.argv for word in fails))\n",
    )
    for name, value in {"VENV": python.parent.parent, "PYTHON": python, "STAMP": python.parent / "stamp"}.items():
        monkeypatch.setattr(module, name, value)
    module.calls = lambda: [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    module.fail = lambda *words: (tmp_path / "fails").write_text(" ".join(words))
    return module


def installs(calls: list[list[str]]) -> list[list[str]]:
    return [call for call in calls if "install" in call and "--dry-run" not in call]


def test_torch_comes_first_and_exactly(set_up):
    assert set_up.environment(["engine-cpu", "test"], gpu=False)
    first, second, apart = installs(set_up.calls())
    assert first[-1] == "torch==2.13.0+cpu" and "--extra-index-url" not in first
    assert second[-1].endswith("[engine-cpu,test]")
    assert "--no-deps" in apart and apart[-3:] == ["nixl==1.5.1", "vllm-router==0.1.17", "nixl-cu12==1.5.1"]
    assert any("uninstall" in call and "torchvision" in call for call in set_up.calls())


def test_without_a_local_wheel_the_public_cpu_index_is_added(set_up):
    set_up.fail("--dry-run")
    assert set_up.environment(["engine-cpu"], gpu=False)
    for call in installs(set_up.calls())[:-1]:
        at = call.index("--extra-index-url")
        assert call[at + 1] == "https://download.pytorch.org/whl/cpu"


def test_with_a_gpu_torch_is_the_plain_one(set_up):
    assert set_up.environment(["engine"], gpu=True)
    first, second, apart = installs(set_up.calls())
    assert first[-1] == "torch==2.13.0"
    assert second[-1].endswith("[engine]") and apart[-1] == "nixl-cu13==1.5.1"


def test_without_the_packages_for_prefill_and_decode_apart_all_else_is_there(set_up, capsys):
    set_up.fail("--no-deps")
    assert set_up.environment(["engine"], gpu=True) and set_up.STAMP.exists()
    assert "Prefill and decode apart will not be there" in capsys.readouterr().out


def test_a_second_run_installs_nothing(set_up):
    assert set_up.environment(["engine-cpu", "test"], gpu=False)
    count = len(set_up.calls())
    assert set_up.environment(["engine-cpu"], gpu=False)
    assert set_up.environment(["engine-cpu", "test"], gpu=False)
    assert len(set_up.calls()) == count


def test_a_failed_install_leaves_no_stamp(set_up, capsys):
    set_up.fail("-e")
    assert not set_up.environment(["engine-cpu"], gpu=False)
    assert not set_up.STAMP.exists()
    assert "run the same command again" in capsys.readouterr().err


def test_the_desktop_entry_starts_this_lathe(tmp_path):
    data = tmp_path / "d a"
    env = {**os.environ, "XDG_DATA_HOME": str(data)}
    subprocess.run([sys.executable, ROOT / "packaging" / "desktop.py"], env=env, check=True, capture_output=True)
    entry = (data / "applications" / "lathe.desktop").read_text(encoding="utf-8")
    command = next(line.removeprefix("Exec=") for line in entry.splitlines() if line.startswith("Exec="))
    assert Path(command.strip('"')).name == "lathe" and Path(command.strip('"')).exists()
    assert (data / "icons" / "hicolor" / "scalable" / "apps" / "lathe.svg").read_text().startswith("<")
    assert "Name=Lathe" in entry
