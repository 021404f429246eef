"""Whatever is killed, nothing of a real engine stays: a tiny INT4 model with n-gram speculation, under the guard."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import httpx
import psutil
import pytest
from compressed_tensors.quantization import QuantizationArgs
from tiny_models import ATTENTION, MLP, TEXT, write_packed, write_plain

from workbench import guard
from workbench.engine import sockets
from workbench.engine.client import chat
from workbench.engine.endpoint import Endpoint
from workbench.engine.sampling import Sampling
from workbench.events import Event, ReplyDone, ReplyFailed, ReplyText

TOLD_S = 5
GONE_S = 10
ANSWERS = 4
LONG = 450  # tokens of an answer
START_S = 300


class Window:
    """The stand-in window with two engines; `engines` maps a folder's name to what it told when ready."""

    def __init__(self, folders: list[Path], temporary: str):
        script = Path(__file__).with_name("window_of_engines.py")
        env = os.environ | {"LATHE_HOME": str(folders[0].parent / "home"), "TMPDIR": temporary}
        env["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than all that is tested here
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, folders)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.told: Queue[dict] = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.folders = folders
        self.engines = {}

    def wait(self, folders: list[Path]) -> None:
        """Until all engines are ready."""
        for _ in folders:
            told = self.told.get(timeout=START_S)
            assert "ready" in told, (told, [each.with_suffix(".log").read_text()[-3000:] for each in folders])
            log = next(each for each in folders if each.name == told["ready"]).with_suffix(".log")
            self.engines[told["ready"]] = told | {"log": log}

    def again(self, *names: str) -> None:
        """Start these engines once more, which ended."""
        folders = [folder for folder in self.folders if folder.name in names]
        self.process.stdin.writelines(f"{folder}\n" for folder in folders)
        self.process.stdin.flush()
        self.wait(folders)

    def _read(self) -> None:
        for line in self.process.stdout:
            self.told.put(json.loads(line))

    def tree(self, name: str) -> dict[str, list]:
        """The identities of guard, server, engine core and workers of one engine."""
        server = psutil.Process(self.engines[name]["pid"])
        below = {each: " ".join(each.cmdline()) for each in server.children()}
        core = next((each for each, line in below.items() if "EngineCore" in line), None)
        assert core, (
            server.cmdline(),
            below,
            list(self.told.queue),
            Path(self.engines[name]["log"]).read_text()[-3000:],
        )
        workers = [each for each in core.children(recursive=True) if "Worker" in " ".join(each.cmdline())]
        assert workers, "this engine computes in a process of its own"
        roles = {"guard": server.parent(), "server": server, "core": core, "worker": workers[0]}
        pids = {process.pid: role for role, process in roles.items()}
        tree = [roles["guard"].pid, *guard.descendants(roles["guard"].pid)]
        return {pids.get(pid, str(pid)): guard.identity(pid) for pid in tree}

    def answers(self, name: str) -> str:
        engine = self.engines[name]
        body = {"model": name, "prompt": TEXT, "max_tokens": 24, "temperature": 0}
        headers = {"Authorization": f"Bearer {engine['key']}"}
        reply = httpx.post(f"{engine['url']}/v1/completions", json=body, headers=headers, trust_env=False, timeout=60)
        return reply.raise_for_status().json()["choices"][0]["finish_reason"]

    def killed(self, name: str, role: str) -> str:
        """What is told when this process of an engine is killed while it answers, after all that has to hold then."""
        tree = self.tree(name)
        with self.broken_answers(name):
            os.kill(tree[role][0], signal.SIGKILL)
            killed_s = time.monotonic()
            assert left(list(tree.values()), GONE_S) == []
            return self.told_failure(name, killed_s)

    def told_failure(self, name: str, since_s: float) -> str:
        told = self.told.get(timeout=TOLD_S)
        assert told["failed"] == name and told["at_s"] - since_s < TOLD_S, told
        return told["message"]

    @contextmanager
    def broken_answers(self, name: str) -> Iterator[None]:
        """The engine answers when the block begins; that the answers failed is known after it.

        Each is asked for again when it is whole, so that some are always on their way.
        """
        begun, whole, replies = threading.Event(), [], []
        endpoint = Endpoint(self.engines[name]["url"], self.engines[name]["key"], name)
        message = [{"role": "user", "content": TEXT}]

        def hear(event: Event) -> None:
            if isinstance(event, ReplyText):
                begun.set()

        async def ask() -> None:
            sampling = Sampling(LONG, 0.0, ignore_eos=True)
            while isinstance(reply := await chat(endpoint, message, sampling, hear), ReplyDone):
                whole.append(reply.tokens)
            replies.append(reply)

        async def ask_all() -> None:
            await asyncio.gather(*(ask() for _ in range(ANSWERS)))

        asking = threading.Thread(target=lambda: asyncio.run(ask_all()), daemon=True)
        asking.start()
        assert begun.wait(30), replies
        yield
        asking.join(GONE_S)
        assert [type(each) for each in replies] == ANSWERS * [ReplyFailed]
        assert set(whole) <= {LONG}, "also where the stream ended with [DONE]"


@pytest.fixture(scope="module")
def temporary():
    """The folder of temporary files: with a short name, as /tmp is, because engines put sockets there."""
    folder = tempfile.mkdtemp()
    yield Path(folder)
    shutil.rmtree(folder)


def shared(opened, *names):
    """The shared memory of these engines."""
    return guard.shared(each[0] for name in names for each in opened.tree(name).values() if each)


@pytest.fixture(scope="module")
def window(tmp_path_factory, temporary):
    """One for both tests: an engine takes the longest to start."""
    tmp_path = tmp_path_factory.mktemp("tree")
    plain = write_plain(tmp_path / "plain", tokenizer=True)
    layered = {
        ATTENTION: QuantizationArgs(num_bits=4, symmetric=False, group_size=32, strategy="group"),
        MLP: QuantizationArgs(num_bits=4, symmetric=True, group_size=64, strategy="group"),
    }
    write_packed(plain, tmp_path / "one", layered)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    folders = [tmp_path / "one", tmp_path / "two"]
    opened = Window(folders, str(temporary))
    try:
        opened.wait(folders)
        yield opened
    finally:
        trees = list(filter(None, map(guard.identity, guard.descendants(opened.process.pid))))
        opened.process.kill()
        opened.process.wait()
        left(trees, GONE_S)
        for pid, *_ in left(trees, 0):
            os.kill(pid, signal.SIGKILL)


def left(tree: list[list], seconds: float) -> list[list]:
    """What still lives of these processes after at most so many seconds."""
    until = time.monotonic() + seconds
    while living := [each for each in tree if (now := guard.identity(each[0])) and now[1] == each[1]]:
        if time.monotonic() > until:
            return living
        time.sleep(0.1)
    return []


def traces(temporary: Path | None, memory: set[str]) -> list[Path | str]:
    """What still lies there a moment after an engine ended, or with `temporary` everything."""
    until = time.monotonic() + 3
    while True:
        found = [*(temporary.iterdir() if temporary else ()), *filter(os.path.exists, memory)]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def test_whatever_is_killed_is_told_ends_the_answer_leaves_nothing_and_starts_again(window, temporary):
    memory = shared(window, "one", "two")
    assert "engine was killed" in window.killed("one", "server")
    assert "core was killed" in window.killed("two", "core")
    assert traces(temporary, memory) == []
    window.again("one", "two")
    memory = shared(window, "one")
    assert "part of the engine" in window.killed("one", "worker")
    assert traces(None, memory) == [] and window.answers("two") == "length"


def test_a_killed_guard_or_window_leaves_nothing(window, temporary):
    """The last: it ends the window."""
    window.again("one")
    assert sum(each.is_socket() for each in temporary.rglob("*")) >= 2 and shared(window, "one", "two")
    memory = shared(window, "one", "two")
    one, two = window.tree("one"), window.tree("two")
    assert sum("unpacked" in note for note in window.engines["one"]["notes"]) == 1
    assert [each for each in sockets.listening(one["guard"][0]) if not each.local] == []
    # The window is stopped, so that only the parent-death signals can end the first engine.
    window.process.send_signal(signal.SIGSTOP)
    with window.broken_answers("one"):
        os.kill(one["guard"][0], signal.SIGKILL)
        assert left(list(one.values()), GONE_S) == []
    window.process.send_signal(signal.SIGCONT)
    assert "engine was killed" in window.told_failure("one", time.monotonic())
    assert window.answers("two") == "length"
    window.process.kill()
    assert left(list(two.values()), GONE_S) == []
    assert traces(temporary, memory) == []
