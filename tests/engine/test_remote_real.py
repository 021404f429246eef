"""A real engine on two tensor parallel processes, met by its address as somebody else's server."""

import asyncio
import json
import os
import subprocess
import sys

import httpx
import pytest
import torch
from tiny_models import TEXT, write_plain
from transformers import AutoModelForCausalLM, AutoTokenizer

from workbench.engine import remote, sockets
from workbench.engine.client import chat
from workbench.engine.endpoint import Endpoint
from workbench.engine.monitor import sampled
from workbench.engine.profile import Profile
from workbench.engine.sampling import Sampling
from workbench.errors import WorkbenchError
from workbench.events import ReplyDone

TOOL = {
    "type": "function",
    "function": {
        "name": "lamp",
        "description": "Switch the lamp.",
        "strict": True,  # else vLLM holds the model to JSON only, not to the schema
        "parameters": {
            "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip
QUESTION = [{"role": "user", "content": "light the lamp"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_plain(tmp_path_factory.mktemp("remote") / "m", tokenizer=True)


@pytest.fixture(scope="module")
def running(served, model):
    engine = served(Profile(model, context=512, kv_gib=0.25, max_sequences=4, tensor_parallel=2, tool_parser="hermes"))
    assert engine.ready, engine.tail()
    return engine


@pytest.fixture
def endpoint(running):
    return Endpoint(running.ready.url + "/v1", running.ready.key)


def asked(running, **fields):
    body = {"model": running.ready.model, "messages": QUESTION, "temperature": 0, "max_tokens": 200, **fields}
    headers = {"Authorization": f"Bearer {running.ready.key}"}
    url = running.ready.url + "/v1/chat/completions"
    reply = httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)
    assert reply.status_code == 200, reply.text
    return reply


def test_each_layer_is_shared_by_two_processes_that_nobody_else_can_reach(running):
    listening = sockets.listening(running.ready.pid)
    assert len({each.pid for each in listening}) >= 4, "server, engine core and two workers"
    assert [each for each in listening if not each.local] == []


def test_two_processes_say_what_one_model_says(running, model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    inputs = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    alone = plain.generate(inputs, max_new_tokens=12, do_sample=False)[0, inputs.shape[1] :]
    body = {"model": running.ready.model, "prompt": inputs[0].tolist(), "max_tokens": 12, "temperature": 0}
    body |= {"ignore_eos": True, "return_token_ids": True}
    reply = httpx.post(
        running.ready.url + "/v1/completions", json=body, timeout=60, trust_env=False,
        headers={"Authorization": f"Bearer {running.ready.key}"},
    )  # fmt: skip
    assert reply.json()["choices"][0]["token_ids"] == alone.tolist()


def test_it_is_known_by_its_address_and_answers_with_figures(running, endpoint):
    async def work():
        found = await remote.probe(endpoint)
        there = remote.endpoint_of(found)
        async with there.open() as http:
            before = await sampled(http)
            events = []
            last = await chat(there, QUESTION, Sampling(9, 0.0, top_k=5), events.append)
            return found, before, await sampled(http), last

    found, before, after, last = asyncio.run(work())
    assert found.version.startswith("0.") and found.has_metrics and found.context == 512
    assert found.models == (running.ready.model,), "the second name that proves whose it is stays out of sight"
    assert isinstance(last, ReplyDone) and last.tokens
    assert after.generated_tokens - before.generated_tokens == last.tokens


def test_a_wrong_key_is_said(endpoint):
    with pytest.raises(WorkbenchError, match="asks for a key"):
        asyncio.run(remote.probe(Endpoint(endpoint.url)))
    with pytest.raises(WorkbenchError, match="refuses the key"):
        asyncio.run(remote.probe(Endpoint(endpoint.url, "wrong")))


def test_tools_and_structured_output_pass_through_for_other_programs(running):
    called = asked(running, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "lamp"}}).json()
    (call,) = called["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "lamp" and set(json.loads(call["function"]["arguments"])) == {"on"}
    assert asked(running, tools=[TOOL], tool_choice="auto", max_tokens=4).json()["choices"]

    schema = {"name": "state", "schema": TOOL["function"]["parameters"], "strict": True}
    shaped = asked(running, response_format={"type": "json_schema", "json_schema": schema}).json()
    assert type(json.loads(shaped["choices"][0]["message"]["content"])["on"]) is bool
    chosen = asked(running, structured_outputs={"choice": ["lit", "dark"]}).json()
    assert chosen["choices"][0]["message"]["content"] in ("lit", "dark")


def test_a_streamed_call_of_a_tool_has_the_pieces_that_the_chat_shows(running):
    choice = {"type": "function", "function": {"name": "lamp"}}
    lines = asked(running, tools=[TOOL], tool_choice=choice, stream=True).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    calls = [call for chunk in chunks for one in chunk["choices"] for call in one["delta"].get("tool_calls") or ()]
    assert calls[0]["function"]["name"] == "lamp" and {call["index"] for call in calls} == {0}
    assert set(json.loads("".join(call["function"].get("arguments") or "" for call in calls))) == {"on"}


def test_the_command_line_reaches_it(running, tmp_path):
    env = {**os.environ, "LATHE_HOME": str(tmp_path), "LATHE_LANGUAGE": "en", "REMOTE": running.ready.key}
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", "connect", running.ready.url, "--key-from-env", "REMOTE", "--json"],
        capture_output=True, text=True, env=env, timeout=60,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["vllm"] and told["metrics"] and told["kv_usage"] == 0
    assert running.ready.key not in done.stdout + done.stderr
