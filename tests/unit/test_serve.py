"""Serving with a stand-in for the engine and real process trees: H06, H19, H20, H21, H22 and H23."""

import asyncio
import os
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import fake_engine
import httpx
import psutil
import pytest
import records
from fake_server import FakeServer

from workbench import guard
from workbench.engine import readiness, serve, served, sockets
from workbench.engine.profile import Profile, Speculation, shorter
from workbench.engine_events import EngineLog, EnginePhase, EngineReady, EngineSample, EngineStopped, StartExpected
from workbench.errors import WorkbenchError
from workbench.events import Failed, Note
from workbench.settings import Settings

REFUSAL = (
    "(EngineCore pid=9) ERROR 11-29 17:16:03 [core.py:1234] ValueError: To serve at least one request with the model's "
    "max seq len (131072), "
    "(2.81 GiB KV cache is needed, which is larger than the available KV cache memory (0.65 GiB). "
    "Based on the available memory, the estimated maximum model length is 30208. Try increasing "
    "`gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when "
    "initializing the engine."
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "模型 库" / "ünï 'quote' & co" / "m1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


class Serving:
    """A running serve() with its events; `started` waits for the first event of a kind."""

    def __init__(self, tmp_path, profile, *steps):
        python = fake_engine.install(tmp_path, *steps)
        self.events, self.times, self._waiting = [], [], []
        self.log = tmp_path / "engine.log"
        self.task = asyncio.create_task(serve.serve(profile, Settings(engine_python=str(python)), self._take, self.log))

    def _take(self, event):
        self.events.append(event)
        self.times.append(time.monotonic())
        for kind, future in self._waiting:
            if isinstance(event, kind) and not future.done():
                future.set_result(event)

    async def first(self, kind, within_s=15.0):
        for event in self.events:
            if isinstance(event, kind):
                return event
        self._waiting.append((kind, asyncio.get_running_loop().create_future()))
        return await asyncio.wait_for(self._waiting[-1][1], within_s)

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def stop(self):
        start = time.monotonic()
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task
        return time.monotonic() - start

    async def failed(self):
        with pytest.raises(WorkbenchError):
            await self.task
        return self.all(Failed)[0]


async def test_a_chat_template_that_is_not_there_is_said_before_the_start(tmp_path, model):
    serving = Serving(tmp_path, Profile(model, chat_template=tmp_path / "none.jinja"), ("answer", "ours"))
    assert "no chat template" in str((await serving.failed()).message)


async def test_the_attention_backend_that_the_engine_chose_is_told_once(tmp_path, model):
    line = "(Worker pid={0}) INFO [cuda.py:507] Using FLASH_ATTN attention backend out of potential backends: x."
    serving = Serving(
        tmp_path, Profile(model, name="m"), ("print", line.format(1)), ("print", line.format(2)),
        ("print", "(Worker pid=1) INFO 11-29 17:16:01 [cuda.py:446] Using FLASHINFER backend."),
        ("print", "Triton is installed, but doesn't include CPU backend."), ("answer", "ours"),
    )  # fmt: skip
    await serving.first(EngineReady)
    await serving.stop()
    assert [str(note.values["name"]) for note in serving.all(Note)] == ["FLASH_ATTN", "FLASHINFER"]


async def test_ready_comes_with_proof_figures_and_phases(tmp_path, model):
    serving = Serving(
        tmp_path, Profile(model, name="m", speculation=Speculation()),
        ("print", "(Worker pid=1) INFO 11-29 17:16:01 [cpu_model_runner.py:68] Starting to load model /tmp/starter..."),
        ("print", "(Worker pid=1) INFO 11-29 17:16 [cpu_worker.py:2] Explicitly set (1/9) GiB for KV cache on node 0"),
        ("print", "(Worker pid=1) INFO 11-29 17:16:04 [cpu_model_runner.py:68] Starting to load model /tmp/draft..."),
        ("answer", "ours"),
    )  # fmt: skip
    ready = await serving.first(EngineReady)
    assert ready.model == "m" and ready.url.startswith("http://127.0.0.1:")
    assert 0 < ready.seconds < 15 and 0.2 <= ready.warmup_s < 2
    assert guard.identity(ready.pid) is not None
    assert [phase.name for phase in serving.all(EnginePhase)] == ["starting", "weights", "kv", "warmup"]
    assert await serving.stop() < 10
    assert isinstance(serving.events[-1], EngineStopped)
    assert isinstance(serving.events[serving.events.index(ready) - 1], EngineSample), "what the warm-up counted"
    assert guard.identity(ready.pid) is None
    assert "cpu_worker.py" in serving.log.read_text()


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
async def test_the_path_arrives_as_one_element(tmp_path, model, monkeypatch, language):
    monkeypatch.setenv("LC_ALL", language)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "intra.example")
    serving = Serving(tmp_path, Profile(model), ("answer", "ours"))
    await serving.first(EngineReady)  # the proxy of the environment did not catch our own calls
    await serving.stop()
    logged = fake_engine.logged(tmp_path)
    assert logged["argv"][logged["argv"].index("--model") + 1] == str(model)
    assert logged["env"]["NO_PROXY"] == "intra.example,localhost,127.0.0.1,::1"
    assert logged["env"]["HTTP_PROXY"] == "http://127.0.0.1:9"


class Stranger(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "stranger"}]}')

    def log_message(self, *_):
        pass


@pytest.fixture
def stranger():
    """Another program that answers 200 to everything; its port."""
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


async def test_a_taken_port_is_told_at_once(tmp_path, model, stranger):
    serving = Serving(tmp_path, Profile(model, port=stranger), ("answer", "ours"))
    failed = await serving.failed()
    assert failed.values == {"port": stranger}
    assert not serving.all(EngineReady) and not (tmp_path / "started.json").exists()


async def test_a_free_port_is_another_one(tmp_path, model, stranger):
    serving = Serving(tmp_path, Profile(model), ("answer", "ours"))
    ready = await serving.first(EngineReady)
    assert ready.url != f"http://127.0.0.1:{stranger}"
    await serving.stop()


@pytest.mark.parametrize("mode", ["stranger", "open"])
async def test_what_cannot_prove_itself_never_gets_ready(tmp_path, model, monkeypatch, mode):
    monkeypatch.setattr(readiness, "STRANGER_S", 0.5)
    serving = Serving(tmp_path, Profile(model), ("answer", mode))
    note = await serving.first(Note)
    await asyncio.sleep(1.0)
    assert "not this engine" in note.message and len(serving.all(Note)) == 1
    assert not serving.all(EngineReady)
    await serving.stop()


async def test_stop_ends_a_tree_whose_middle_was_killed(tmp_path, model):
    pids = tmp_path / "pids"
    serving = Serving(tmp_path, Profile(model), ("tree", str(pids)), ("answer", "ours"))
    await serving.first(EngineReady)
    while not pids.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    middle, grandchild = (int(pid) for pid in pids.read_text().split())
    os.kill(middle, signal.SIGKILL)
    assert guard.identity(grandchild) is not None
    assert await serving.stop() < 10
    assert guard.identity(grandchild) is None


async def test_a_death_while_loading_is_told_within_two_seconds(tmp_path, model):
    serving = Serving(
        tmp_path, Profile(model), ("stderr", 200_000), ("print", "ValueError: no such thing"), ("print", "bye"),
        ("sleep", 1), ("exit", 7),
    )  # fmt: skip
    await serving.first(EngineLog)
    failed = await serving.failed()
    ended = serving.times[-1] - serving.times[-2]
    assert ended < 1 + 2
    assert len(serving.all(EngineLog)) == 2002
    assert failed.values["code"] == 7 and failed.values["line"] == "ValueError: no such thing"
    assert failed.details.splitlines()[0] == "ValueError: no such thing" and failed.details.endswith("bye")
    assert len(serving.log.read_text().splitlines()) == 2002


async def test_silence_is_told_and_stop_works_in_it(tmp_path, model, monkeypatch):
    monkeypatch.setattr(readiness, "SILENCE_S", 0.5)
    serving = Serving(tmp_path, Profile(model), ("print", "loading"), ("sleep", 600))
    note = await serving.first(Note)
    assert note.message == "Still loading, no output for {seconds} s." and "seconds" in note.values
    await asyncio.sleep(1.2)
    assert 2 <= len(serving.all(Note)) <= 5
    assert await serving.stop() < 10


async def test_the_length_of_a_refusal_is_offered_for_a_retry(tmp_path, model):
    profile = Profile(model)
    serving = Serving(tmp_path, profile, ("print", REFUSAL), ("exit", 1))
    failed = await serving.failed()
    assert failed.values["max_length"] == 30208
    again = shorter(profile, failed)
    assert again.context <= 30208 and again.model == model
    serving = Serving(tmp_path, again, ("answer", "ours"))
    await serving.first(EngineReady)
    await serving.stop()
    argv = fake_engine.logged(tmp_path)["argv"]
    assert argv[argv.index("--max-model-len") + 1] == "30208"
    assert shorter(profile, Failed("x")) is None


@pytest.mark.parametrize("what", ["server", "guard"])
async def test_what_is_killed_after_ready_is_told_within_five_seconds_and_leaves_nothing(tmp_path, model, what):
    """Also where the rest of the tree has to be killed first, which takes longer than to see that nobody answers."""
    pids = tmp_path / "pids"
    serving = Serving(tmp_path, Profile(model), ("tree", str(pids)), ("answer", "ours"))
    ready = await serving.first(EngineReady)
    while not pids.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    tree = [ready.pid, *map(int, pids.read_text().split())]
    await records.until_named(tree)
    killed_s = time.monotonic()
    os.kill(ready.pid if what == "server" else psutil.Process(ready.pid).ppid(), signal.SIGKILL)
    failed = await serving.first(Failed)
    assert time.monotonic() - killed_s < 5
    assert failed.values["code"] == 137 and "engine was killed" in failed.message
    await serving.failed()
    assert time.monotonic() - killed_s < 10
    assert [each for each in tree if guard.identity(each)] == [] and len(serving.all(Failed)) == 1


async def test_a_dead_engine_behind_a_server_that_lives_on_is_told_within_five_seconds(tmp_path, model):
    pids = tmp_path / "pids"
    serving = Serving(tmp_path, Profile(model), ("tree", str(pids)), ("answer", "dying"))
    ready = await serving.first(EngineReady)
    while not pids.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    died_s = time.monotonic()
    os.kill(ready.pid, signal.SIGUSR1)
    failed = await serving.first(Failed)
    assert time.monotonic() - died_s < 5
    assert "core was killed" in failed.message and "code" not in failed.values
    await serving.failed()
    assert [each for each in (ready.pid, *map(int, pids.read_text().split())) if guard.identity(each)] == []
    assert len(serving.all(Failed)) == 1


async def test_the_next_start_knows_how_long_each_phase_took(tmp_path, model):
    steps = ("print", "Starting to load model x"), ("sleep", 0.4), ("answer", "ours")
    serving = Serving(tmp_path, Profile(model, port=0), *steps)
    ready = await serving.first(EngineReady)
    await serving.stop()
    assert serving.all(StartExpected) == [StartExpected({})]
    phases = serving.all(EnginePhase)
    again = Serving(tmp_path, Profile(model, name="other", port=sockets.free_port()), *steps)
    expected = (await again.first(StartExpected)).seconds
    assert list(expected) == ["starting", "weights", "warmup"]
    assert expected["weights"] == pytest.approx(phases[2].at_s - phases[1].at_s, abs=0.01)
    assert expected["weights"] > 0.4 and expected["warmup"] == pytest.approx(ready.warmup_s, abs=0.01)
    await again.stop()
    longer = Serving(tmp_path, Profile(model, context=512), *steps)
    assert (await longer.first(StartExpected)).seconds == {}, "another profile"
    await longer.stop()


async def test_a_folder_without_a_model_and_an_interpreter_without_vllm_are_sentences(tmp_path, model, monkeypatch):
    serving = Serving(tmp_path, Profile(tmp_path / "nothing"))
    assert (await serving.failed()).values == {"folder": str(tmp_path / "nothing")}
    monkeypatch.setitem(fake_engine.FACTS, "version", None)
    serving = Serving(tmp_path, Profile(model))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '{\"version\": null}'\n")
    assert "vLLM" in (await serving.failed()).message


def test_listening_sockets_are_told_from_local_ones():
    with socket.socket() as near, socket.socket() as far, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        near.bind(("127.0.0.1", 0))
        far.bind(("0.0.0.0", 0))
        datagrams.bind(("0.0.0.0", 0))
        near.listen()
        far.listen()
        ports = {each.getsockname()[1]: index for index, each in enumerate((near, far, datagrams))}
        found = {int(each.address.rpartition(":")[2]): each.local for each in sockets.listening(os.getpid())
                 if each.address.rpartition(":")[2].isdigit()}  # fmt: skip
        assert {ports[port]: local for port, local in found.items() if port in ports} == {0: True, 1: False, 2: False}
        assert sockets.owner(near.getsockname()[1], os.getpid()) == os.getpid()
        assert not sockets.is_free(near.getsockname()[1])
        assert not sockets.is_free(far.getsockname()[1])
    assert sockets.is_free(sockets.free_port())


async def test_an_engine_that_is_being_ended_reports_no_figures_that_it_has_not(tmp_path, model):
    """What is deaf is killed after seconds: the figures ended with the request to end."""
    page = "vllm:num_requests_running 0\n"
    pids = tmp_path / "pids"
    python = fake_engine.install(tmp_path, ("tree", str(pids)), ("answer", "ours", [page]))
    events = []
    async with served.served(Profile(model), Settings(engine_python=str(python)), events.append):
        while not any(isinstance(event, EngineReady) for event in events) or not pids.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    samples = [event for event in events if isinstance(event, EngineSample)]
    assert samples and all(sample.running == 0 for sample in samples)
    assert any(isinstance(event, EngineStopped) for event in events)


async def test_a_first_poll_of_figures_that_breaks_is_made_again(tmp_path, model):
    """Without it what the warm-up counted would be taken for the user's."""
    broken, page = "vllm:prompt_tokens_total thirty\n", "vllm:prompt_tokens_total 30\n"
    serving = Serving(tmp_path, Profile(model), ("answer", "ours", [broken, page]))
    await serving.first(EngineReady)
    assert [sample.prompt_tokens for sample in serving.all(EngineSample)] == [30]
    serving.task.cancel()
    await asyncio.gather(serving.task, return_exceptions=True)


async def test_a_refused_warm_up_is_told_in_the_engine_s_words():
    notes = []
    with FakeServer(models=["m"]) as server:
        server.pages["/v1/completions"] = (400, '{"error": {"message": "The prompt cannot be empty"}}')
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            assert await readiness.warm_up(client, "k", "m", notes.append) is None
    assert [note.values for note in notes] == [{"reason": "The prompt cannot be empty"}]
