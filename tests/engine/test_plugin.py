"""The plugin outside vLLM: asleep unless asked, never in the way of a start, and gone with its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workbench.engine import plugin_words

# A grandchild as vLLM starts its own: by multiprocessing, from the parent's main thread. It waits `delay` seconds
# before it registers, as a real one does while it imports.
TREE = """
import multiprocessing, os, sys, time
from workbench.engine import plugin

def child(delay):
    print(os.getpid(), flush=True)
    time.sleep(delay)
    plugin.register()
    print("registered", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child, args=(float(sys.argv[1]),))
    process.start()
    time.sleep(60)
"""


@pytest.fixture
def other_vllm(tmp_path):
    """An environment in which `import vllm` finds the given source instead of vLLM."""

    def environment(source: str, **values: str) -> dict[str, str]:
        package = tmp_path / "other" / "vllm"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "platforms.py").write_text(source)
        kept = {name: value for name, value in os.environ.items() if name != "LATHE_ENGINE"}
        return kept | {"PYTHONPATH": str(package.parent)} | values

    return environment


NO_CPU = "class PlatformEnum: CPU = 1\nclass current_platform:\n    is_cpu = staticmethod(lambda: False)\n"


def python(code: str, env: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


def test_it_sleeps_in_a_vllm_that_we_did_not_start(other_vllm):
    env = other_vllm("raise RuntimeError('touched')")
    code = "import sys; from workbench.engine import plugin; plugin.register(); print(sorted(sys.modules))"
    done = python(code, env)
    assert done.returncode == 0 and done.stderr == ""
    assert "'vllm'" not in done.stdout and "'torch'" not in done.stdout


def test_a_failure_is_one_line_and_the_engine_starts(other_vllm):
    env = other_vllm("raise RuntimeError('two\\nlines')", LATHE_ENGINE="1")
    done = python("from workbench.engine import plugin; plugin.register(); print('on')", env)
    assert done.stdout == "on\n" and done.returncode == 0
    assert done.stderr == plugin_words.FAILED.format(reason="_supply_kernel: RuntimeError: two lines") + "\n"


@pytest.mark.parametrize("delay", ["0", "1.5"], ids=["registered", "parent gone before"])
def test_a_child_goes_with_its_killed_parent(other_vllm, tmp_path, delay):
    parent, child = start_tree(tmp_path, other_vllm(NO_CPU, LATHE_ENGINE="1"), delay)
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    assert gone(child, 8)


def test_without_our_launcher_a_child_is_left_as_vllm_left_it(other_vllm, tmp_path):
    parent, child = start_tree(tmp_path, other_vllm(NO_CPU), "0")
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    try:
        assert not gone(child, 1)
    finally:
        child.kill()


def start_tree(folder: Path, env: dict[str, str], delay: str) -> tuple[subprocess.Popen, psutil.Process]:
    """The parent and its child, which has registered unless it still waits."""
    script = folder / "tree.py"
    script.write_text(TREE)
    parent = subprocess.Popen([sys.executable, str(script), delay], env=env, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    if delay == "0":
        assert parent.stdout.readline() == "registered\n"
    return parent, child


def gone(process: psutil.Process, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_the_log_line_becomes_a_note_whatever_stands_before_it():
    line = "(EngineCore pid=12) " + plugin_words.UNPACKED.format(bits=8)
    assert plugin_words.note(line).values == {"bits": 8}
    assert plugin_words.note("(EngineCore pid=12) Loading weights took 8 seconds") is None
