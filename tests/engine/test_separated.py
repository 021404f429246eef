"""Prefill and decode apart in real vLLM: an INT4 model with n-gram speculation, handed over by NIXL on the CPU."""

import os
import signal
import time

import httpx
import pytest
from compressed_tensors.quantization import QuantizationArgs
from conftest import Served
from tiny_models import ATTENTION, MLP, TEXT, write_packed, write_plain

from workbench import guard
from workbench.engine import apart, handed, separation, sockets
from workbench.engine.profile import Profile, Speculation
from workbench.events import Failed, LegEvent, Note
from workbench.runs import EngineRun
from workbench.settings import Settings

PROMPT = f"{TEXT} {TEXT} "


class Apart(Served):
    """serve_separated() in a thread; `run` is its state."""

    def _serve(self):
        self.run = EngineRun()
        return apart.serve_separated(self.profile, Settings(), self._take, self.log)

    def _take(self, event):
        self.run.apply(event)
        super()._take(event)

    def tail(self):
        return "\n".join(line for leg in self.run.legs.values() for line in list(leg.log)[-40:])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    plain = write_plain(folder / "plain", tokenizer=True)
    layered = {
        ATTENTION: QuantizationArgs(num_bits=4, symmetric=False, group_size=32, strategy="group"),
        MLP: QuantizationArgs(num_bits=4, symmetric=True, group_size=64, strategy="group"),
    }
    write_packed(plain, folder / "packed", layered)
    profile = Profile(
        folder / "packed", name="m", context=512, kv_gib=0.25, speculation=Speculation(tokens=3, lookup_min=1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")  # compiling takes longer than all that is tested here
        patch.setenv("LATHE_HOME", str(folder / "home"))
        before = set(guard.descendants(os.getpid()))  # other tests have children too that stay
        running = Apart(separation.of_profile(profile), folder / "front.log")
        assert running.ready, running.tail()
        running.tree = [guard.identity(pid) for pid in guard.descendants(os.getpid()) if pid not in before]
        yield running
        running.stop()


def answer(url, key, prompt):
    body = {"model": "m", "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {key}"}
    reply = httpx.post(f"{url}/v1/completions", json=body, headers=headers, trust_env=False, timeout=60)
    return reply.raise_for_status().json()


def told_of(run, leg):
    """Both numbers of the sentence, after one more poll of the engine that writes."""
    asked_s = time.monotonic()
    while leg.sample is None or leg.sample.at_s < asked_s or leg.sample.prompt_tokens is None:
        assert time.monotonic() < asked_s + 10
        time.sleep(0.1)
    words = str(handed.told(run) or "0 of 0").split()
    return int(words[0]), int(words[2])


def figures(leg):
    """Prompt tokens, those of them from the other engine, and drafts; as the engine counts them now."""
    found = dict.fromkeys(("vllm:prompt_tokens_total", "vllm:external_prefix_cache_hits_total",
                           "vllm:spec_decode_num_drafts_total"), 0.0)  # fmt: skip
    for line in httpx.get(leg.ready.url + "/metrics", trust_env=False).text.splitlines():
        name, _, value = line.partition("{")
        if name in found:
            found[name] = float(value.rpartition(" ")[2])
    return tuple(found.values())


def test_decode_answers_from_the_prompt_that_prefill_read(served):
    """The same text as one engine, the prompt's tokens all from outside, and drafts while it decodes."""
    prefill, decode = served.run.legs["prefill"], served.run.legs["decode"]
    earlier, before = told_of(served.run, decode), figures(decode)
    told = answer(served.ready.url, served.ready.key, PROMPT)
    after = figures(decode)
    tokens = told["usage"]["prompt_tokens"]
    assert (after[0] - before[0], after[1] - before[1]) == (tokens, tokens)
    assert after[2] > before[2], "n-grams draft on the decode engine"
    assert figures(prefill)[1] == 0
    alone = answer(prefill.ready.url, prefill.ready.key, PROMPT)
    assert told["choices"][0]["text"] == alone["choices"][0]["text"] != ""
    now = told_of(served.run, decode)
    assert (now[0] - earlier[0], now[1] - earlier[1]) == (tokens, tokens)
    assert not [event for event in served.events if isinstance(event, Note) and event.level == "warning"]


def test_everything_listens_on_this_machine_only_and_both_engines_want_the_key(served):
    listening = sockets.listening(os.getpid())
    assert [each for each in listening if not each.local] == []
    assert len({each.pid for each in listening}) >= 7, "two servers, cores and workers, and the router"
    for leg in served.run.legs.values():
        assert httpx.get(leg.ready.url + "/v1/models", trust_env=False).status_code == 401
    key = {"Authorization": f"Bearer {served.ready.key}"}
    listed = httpx.get(served.ready.url + "/v1/models", headers=key, trust_env=False).json()
    assert listed["data"][0]["id"] == "m", "for the engines' key the front lists its model"


def test_a_killed_prefill_engine_is_told_and_leaves_nothing(served):
    killed_s = time.monotonic()
    os.kill(served.run.legs["prefill"].ready.pid, signal.SIGKILL)
    while not served.failed:
        assert time.monotonic() - killed_s < 5
        time.sleep(0.05)
    assert str(served.failed.values["leg"]) == "prefill engine"
    assert any(isinstance(each, LegEvent) and each.leg == "prefill" and isinstance(each.event, Failed)
               for each in served.events)  # fmt: skip
    while left := [each for each in served.tree if each and guard.identity(each[0]) == each]:
        assert time.monotonic() - killed_s < 10, left
        time.sleep(0.1)
