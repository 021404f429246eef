"""Prefill and decode apart with stand-ins for the engines and the real router: H27, and what of it is killed."""

import asyncio
import json
import os
import signal
import sys
import time

import fake_engine
import httpx
import pytest
from fake_server import FakeServer, answer

from workbench import admission, guard, ledger, memory
from workbench.engine import apart, command, facts, handover, health, needs, separation, sockets
from workbench.engine.client import chat, models
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Profile
from workbench.engine.sampling import Sampling
from workbench.engine_events import EngineReady, EngineSample, EngineStopped
from workbench.errors import WorkbenchError
from workbench.events import Failed, LegEvent, ReplyFailed, ReplyText, Stage
from workbench.measure.mixed_load import Mix, compare_separated
from workbench.memory import Measured, Room
from workbench.runs import EngineRun
from workbench.settings import Settings

TOLD_S = 5
GONE_S = 10
HANDED = {"kv_transfer_params": {"remote_engine_id": "p", "remote_block_ids": [1]}, "choices": [{"text": "a"}]}


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(separation, "inspect", lambda folder: None)
    monkeypatch.setattr(separation, "need", lambda model, profile, device: type("Need", (), {"total": 1000}))


class Serving:
    """A running serve_separated() with its state."""

    def __init__(self, tmp_path, chosen, python=sys.executable, **more):
        self.run, self.events, self.times = EngineRun(), [], []
        settings, log = Settings(engine_python=str(python)), tmp_path / "front.log"
        work = apart.serve_separated(chosen, settings, self._take, log, **more)
        self.task = asyncio.create_task(work)

    def _take(self, event):
        self.events.append(event)
        self.times.append(time.monotonic())
        self.run.apply(event)

    async def ready(self):
        await until(lambda: self.run.ready or self.task.done(), 30)
        assert self.run.state == "ready", self.run
        return self.run.ready

    async def failed(self):
        with pytest.raises(WorkbenchError):
            await self.task
        (found,) = [index for index, event in enumerate(self.events) if isinstance(event, Failed)]
        return self.events[found], self.times[found]

    async def stop(self):
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task
        assert isinstance(self.events[-1], EngineStopped)

    def of(self, leg, kind):
        return [each.event for each in self.events if isinstance(each, LegEvent) and each.leg == leg
                and isinstance(each.event, kind)]  # fmt: skip


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "模型 库" / "m1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def engines(tmp_path, model):
    """Two engines of ours that only say that they run."""
    python = fake_engine.install(tmp_path, ("answer", "dying"))
    return lambda **more: Serving(tmp_path, separation.of_profile(Profile(model, name="m")), python, **more)


async def until(happened, within_s=TOLD_S):
    """Wait until `happened()` is true."""
    end_s = time.monotonic() + within_s
    while not (found := happened()):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)
    return found


def below():
    return [each for each in map(guard.identity, guard.descendants(os.getpid())) if each]


@pytest.mark.parametrize("victim", ["prefill", "decode"])
async def test_a_killed_leg_is_told_with_its_cause_and_nothing_is_left(engines, victim):
    serving = engines()
    await serving.ready()
    assert {name: leg.state for name, leg in serving.run.legs.items()} == {"prefill": "ready", "decode": "ready"}
    killed_s = time.monotonic()
    os.kill(serving.run.legs[victim].ready.pid, signal.SIGKILL)
    failed, at_s = await serving.failed()
    assert at_s - killed_s < TOLD_S and time.monotonic() - killed_s < GONE_S
    assert str(failed.values["leg"]) == f"{victim} engine" and "killed" in str(failed.values["cause"])
    other = {"prefill": "decode", "decode": "prefill"}[victim]
    assert {name: leg.state for name, leg in serving.run.legs.items()} == {victim: "failed", other: "stopped"}
    assert below() == []


@pytest.fixture
def full(monkeypatch):
    """5,000 bytes are free, and a job will take 4,500 of them."""
    monkeypatch.setattr(admission, "LOOK_S", 0.02)
    monkeypatch.setattr(memory, "measure", lambda roots: Measured({"cpu": Room("CPU", 9000, 5000)}, {}))
    monkeypatch.setattr(needs, "of", lambda *_: {"cpu": 3000})
    job = ledger.new("quantize", "large", {"cpu": 4500})
    assert ledger.claim(job, memory.measure([]))[0]
    ledger._own.clear()
    return job


async def test_engines_apart_wait_for_others_but_not_for_each_other(engines, full):
    serving = engines(ask=admission.wait)
    await until(lambda: serving.of("prefill", Stage))
    await asyncio.sleep(0.1)
    assert not serving.of("prefill", EngineReady)
    ledger.release(full)
    await serving.ready()
    assert len(ledger.entries()) == 2
    ledger.stop(ledger.entries()[0])
    with pytest.raises(asyncio.CancelledError):
        await serving.task
    assert ledger.entries() == [] and below() == []


async def test_where_one_engine_is_not_to_be_started_none_is(engines, full):
    async def nothing(conflict):
        assert conflict.smaller is None
        raise asyncio.CancelledError

    serving = engines(ask=nothing)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving.task, 10)
    assert ledger.entries() == [full] and below() == []


async def test_an_engine_that_died_behind_its_server_is_told(engines):
    serving = engines()
    await serving.ready()
    died_s = time.monotonic()
    os.kill(serving.run.legs["decode"].ready.pid, signal.SIGUSR1)
    failed, at_s = await serving.failed()
    assert at_s - died_s < TOLD_S and str(failed.values["leg"]) == "decode engine" and below() == []


async def test_a_killed_router_is_told_and_nothing_is_left(engines):
    serving = engines()
    ready = await serving.ready()
    killed_s = time.monotonic()
    os.kill(ready.pid, signal.SIGKILL)
    failed, at_s = await serving.failed()
    assert at_s - killed_s < TOLD_S and failed.values["code"] == 137 and "router" in failed.message
    assert below() == []


async def test_both_legs_share_a_key_which_stands_in_no_command_line_or_log(engines, tmp_path):
    serving = engines()
    ready = await serving.ready()
    keys = {leg.ready.key for leg in serving.run.legs.values()}
    (key,) = keys
    assert key and ready.key == key
    lines = [" ".join(guard.identity(pid)[2:]) for pid in guard.descendants(os.getpid())]
    assert len(lines) >= 6 and not any(key in line for line in lines)
    assert not any(key in log.read_text() for log in tmp_path.glob("*.log"))
    assert all(each.local for each in sockets.listening(os.getpid()))
    # A page in the user's browser could read the answers of a front without a key, if the front let it.
    asked = {"Origin": "http://elsewhere", "Access-Control-Request-Method": "POST"}
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.options(ready.url + "/v1/chat/completions", headers=asked)
    assert reply.headers.get("access-control-allow-origin") not in ("*", "http://elsewhere")
    await serving.stop()
    assert below() == []


async def test_a_leg_that_refuses_to_start_ends_all(tmp_path, model):
    python = fake_engine.install(tmp_path, ("print", "ValueError: no such thing"), ("exit", 1))
    serving = Serving(tmp_path, separation.of_profile(Profile(model, name="m")), python)
    failed, _ = await serving.failed()
    assert "no such thing" in str(failed.values["cause"]) and below() == []


def legs(key="secret"):
    metrics = "vllm:external_prefix_cache_hits_total 3\nvllm:prompt_tokens_total 8\n"
    made = FakeServer(answer("one ", "two"), models=["m"], key=key, metrics=metrics)
    made.pages["/v1/completions"] = (200, json.dumps(HANDED))
    return made


async def ask(url):
    events = []
    last = await chat(Endpoint(url, "", "m"), [{"role": "user", "content": "x"}], Sampling(), events.append)
    return last, "".join(event.text for event in events if isinstance(event, ReplyText))


async def test_running_engines_are_asked_one_after_the_other_and_followed(tmp_path):
    with legs() as prefill, legs() as decode:
        prefill.pages["/v1/chat/completions"] = (200, json.dumps(HANDED))
        serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "secret"))
        ready = await serving.ready()
        assert ready.model == "m" and ready.warmup_s is not None
        assert "handed no prompt" in serving.run.notes[0].message  # these figures never grow
        last, text = await ask(ready.url)
        assert text == "one two" and last.tokens == 2
        assert await models(Endpoint(ready.url, ready.key)) == ["m"]
        assert prefill.asked.count("/v1/chat/completions") == 1
        assert decode.requests[0]["kv_transfer_params"] == HANDED["kv_transfer_params"]
        assert decode.headers[0]["authorization"] == "Bearer secret"
        await until(lambda: serving.of("decode", EngineSample))
        assert serving.run.legs["decode"].sample.external_tokens == 3
        await serving.stop()


async def test_an_engine_that_misses_a_check_is_busy_and_not_gone(tmp_path, monkeypatch):
    """The router let nobody through for seconds after a single one."""

    async def there(client):
        return True

    monkeypatch.setattr(health, "answers", there)  # so that only the router asks
    with legs() as prefill, legs() as decode:
        prefill.pages["/v1/chat/completions"] = (200, json.dumps(HANDED))
        serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "secret"))
        ready = await serving.ready()
        prefill.pages["/health"] = (503, "")
        asked = prefill.asked.count("/health")
        await until(lambda: prefill.asked.count("/health") >= asked + 2)
        last, text = await ask(ready.url)
        assert text == "one two", last
        await serving.stop()


async def test_several_engines_of_a_kind_all_get_work(tmp_path):
    with legs() as prefill, legs() as other, legs() as decode, legs() as last:
        for each in (prefill, other):
            each.pages["/v1/chat/completions"] = (200, json.dumps(HANDED))
        there = separation.of_urls((prefill.url, other.url), (decode.url, last.url), "secret")
        serving = Serving(tmp_path, there)
        ready = await serving.ready()
        assert list(serving.run.legs) == ["prefill 1", "prefill 2", "decode 1", "decode 2"]
        replies = await asyncio.gather(*(ask(ready.url) for _ in range(4)))
        assert [text for _, text in replies] == ["one two"] * 4
        assert len(decode.requests) == len(last.requests) == 2
        assert sum(each.asked.count("/v1/chat/completions") for each in (prefill, other)) == 4
        await serving.stop()


async def test_a_prompt_that_prefill_refuses_never_reaches_decode(tmp_path):
    with legs() as prefill, legs() as decode:
        serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "secret"))
        ready = await serving.ready()
        refusal = {"error": {"message": "This model's maximum context length is 8 tokens"}}
        prefill.pages["/v1/chat/completions"] = (400, json.dumps(refusal))
        began_s = time.monotonic()
        last, text = await ask(ready.url)
        assert isinstance(last, ReplyFailed) and "maximum context length" in last.values["reason"] and text == ""
        assert time.monotonic() - began_s < TOLD_S and decode.requests == []
        await serving.stop()


async def test_stop_between_the_legs_reaches_both(tmp_path):
    with legs() as prefill, legs() as decode:
        prefill.script = [(60, "")]
        serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "secret"))
        ready = await serving.ready()
        asking = asyncio.create_task(ask(ready.url))
        await until(lambda: prefill.requests)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: prefill.disconnected_s)
        assert decode.requests == []
        await serving.stop()


async def test_a_running_engine_that_goes_is_told(tmp_path):
    with legs() as decode:
        with legs() as prefill:
            serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "secret"))
            await serving.ready()
        gone_s = time.monotonic()
        failed, at_s = await serving.failed()
        assert at_s - gone_s < TOLD_S and "answers no more" in str(failed.values["cause"])
        assert serving.run.legs["prefill"].state == "failed" and below() == []


async def test_running_engines_that_do_not_go_together_are_refused(tmp_path):
    with legs() as prefill, legs() as decode:
        decode.pages["/v1/models"] = (200, json.dumps({"data": [{"id": "m", "root": "/elsewhere"}]}))
        prefill.pages["/v1/models"] = (200, json.dumps({"data": [{"id": "m", "root": "/here"}]}))
        serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "secret"))
        failed, _ = await serving.failed()
        assert str(failed.values["label"]) == "The model's folder" and prefill.requests == decode.requests == []


async def test_a_wrong_key_is_told(tmp_path):
    with legs() as prefill, legs() as decode:
        serving = Serving(tmp_path, separation.of_urls((prefill.url,), (decode.url,), "wrong"))
        failed, _ = await serving.failed()
        assert "refuses the key" in str(failed.values["cause"])


async def test_the_commands_hand_over_on_this_machine_only(model, tmp_path):
    python = fake_engine.install(tmp_path)
    known = await facts.ask(str(python))
    commands = handover.shown(separation.of_profile(Profile(model, name="m"), 1, 2), known)
    assert list(commands) == ["prefill", "decode 1", "decode 2", "front"]
    ports = {each.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] for name, each in commands.items() if name != "front"}
    assert len(ports) == 3
    for name in ("prefill", "decode 1"):
        argv, env = commands[name].argv, commands[name].env
        config = json.loads(argv[argv.index("--kv-transfer-config") + 1])
        assert config["kv_load_failure_policy"] == "fail" and config["kv_buffer_device"] == "cpu"
        assert (env["VLLM_NIXL_SIDE_CHANNEL_HOST"], env["UCX_NET_DEVICES"]) == ("127.0.0.1", "lo")
    front = commands["front"].argv
    assert front.count("--decode") == 2 and front[front.index("--prometheus-host") + 1] == "127.0.0.1"
    assert "OPENAI_API_KEY" in command.shown(commands["front"]) and "$LATHE_KEY" in command.shown(commands["front"])


def test_missing_packages_are_a_sentence_with_the_command():
    known = facts.EngineFacts("/py", "0.32.0", None, False, frozenset({"--kv-transfer-config"}), True, None, nixl=True)
    error = handover.missing(known)
    assert "/py" in str(error) and "--no-deps nixl==1.5.1 nixl-cu13==1.5.1 vllm-router==0.1.17" in error.hint
    assert handover.missing(facts.EngineFacts("/py", "0.5", None, False, frozenset(), True, None)).values["flag"]


async def test_the_mixed_load_runs_in_one_engine_and_then_apart(tmp_path, model):
    """These stand-ins answer no chat: what is compared is that every request of both ways was sent and counted."""
    python = fake_engine.install(tmp_path, ("answer", "dying"))
    told = []
    found = await compare_separated(
        separation.of_profile(Profile(model, name="m")),
        Mix(chats=1, prompts=2, prompt_words=5, pause_s=0.01),
        Settings(engine_python=str(python)),
        lambda side, event: told.append((side, event)),
    )
    assert (found.one.failed, found.apart.failed) == (3, 3)
    sides = [side for side, event in told if isinstance(event, EngineReady)]
    assert sides == ["one", "apart"]
    stopped = next(index for index, (side, event) in enumerate(told) if isinstance(event, EngineStopped))
    assert all(side == "apart" for side, _ in told[stopped + 1 :]), "one engine has ended before the others start"
    assert below() == []
