"""The client against a scripted server: what arrives, what is measured, what is said when it breaks."""

import asyncio
import json
import time

import pytest
from fake_server import DROP, FakeServer, answer, delta, usage

from workbench.engine.client import chat, models
from workbench.engine.endpoint import Endpoint
from workbench.engine.event_stream import EventStream
from workbench.engine.sampling import Sampling
from workbench.errors import WorkbenchError
from workbench.events import ReplyDone, ReplyFailed, ReplyStarted, ReplyText

PROMPT = [{"role": "user", "content": "hello"}]
DEFAULTS = Sampling()


async def ask(server: FakeServer, sampling: Sampling = DEFAULTS, **endpoint) -> tuple[list, ReplyDone | ReplyFailed]:
    events = []
    last = await chat(Endpoint(server.url, model="fake", **endpoint), PROMPT, sampling, events.append)
    assert isinstance(events[0], ReplyStarted)
    assert events[-1] is last
    return events, last


def text_of(events: list, reasoning: bool = False) -> str:
    return "".join(event.text for event in events if isinstance(event, ReplyText) and event.reasoning == reasoning)


async def test_an_answer_comes_whole_with_its_counts():
    with FakeServer(answer("Good", " day")) as server:
        events, last = await ask(server, Sampling(max_tokens=9, temperature=0.0))
    assert text_of(events) == "Good day"
    assert (last.reason, last.prompt_tokens, last.tokens) == ("stop", 11, 2)
    body = server.requests[0]
    assert (body["max_tokens"], body["temperature"], body["model"]) == (9, 0.0, "fake")
    assert body["stream_options"]["include_usage"] is True
    assert "top_p" not in body and "seed" not in body


def test_characters_cut_at_every_byte_arrive_whole():
    """H31."""
    words = "日本語 漢字 한국어 👩‍🚀"
    raw = "".join(f"data: {json.dumps(delta(word), ensure_ascii=False)}\r\n\r\n" for word in words).encode()
    whole = EventStream().feed(raw)
    assert "".join(json.loads(data)["choices"][0]["delta"]["content"] for data in whole) == words
    for cut in range(len(raw) + 1):
        stream = EventStream()
        assert stream.feed(raw[:cut]) + stream.feed(raw[cut:]) == whole, cut
    one_by_one = EventStream()
    assert [data for byte in raw for data in one_by_one.feed(bytes([byte]))] == whole


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_counts(end):
    stream = EventStream()
    raw = f": comment{end}data: a{end}data: b{end}{end}event: x{end}data:c{end}{end}".encode()
    assert [data for byte in raw for data in stream.feed(bytes([byte]))] == ["a\nb", "c"]


async def test_a_character_escaped_in_two_halves_is_joined():
    chunks = [
        'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
        'data: {"choices":[{"delta":{"content":"\\ude80!"}}]}\n\n',
    ]
    with FakeServer([(0, chunk) for chunk in chunks] + [(0, "data: [DONE]\n\n")]) as server:
        events, _ = await ask(server)
    assert text_of(events) == "🚀!"


async def test_an_error_chunk_before_done_is_a_failure():
    """vLLM answers so when its engine dies under a stream."""
    script = [(0, delta("Once")), (0, {"error": {"message": "EngineCore encountered an issue", "code": 500}})]
    with FakeServer([*script, (0, "data: [DONE]\n\n")]) as server:
        events, last = await ask(server)
    assert isinstance(last, ReplyFailed)
    assert "EngineCore encountered an issue" in last.values["reason"]
    assert text_of(events) == "Once"


async def test_a_lost_connection_is_a_failure_and_the_text_stays():
    with FakeServer([(0, delta("Once")), (0.05, delta(" upon")), (0.05, DROP)]) as server:
        events, last = await ask(server)
    assert isinstance(last, ReplyFailed) and last.hint
    assert text_of(events) == "Once upon"


async def test_a_stream_that_ends_without_an_end_is_a_failure():
    with FakeServer([(0, delta("Once"))]) as server:
        _, last = await ask(server)
    assert isinstance(last, ReplyFailed)


@pytest.mark.parametrize(
    ("status", "message", "sentence"),
    [
        (400, "This model's maximum context length is 256 tokens.", "does not fit the model's context"),
        (400, "min_p is not supported", "refused the request"),
        (401, "Unauthorized", "refuses the key"),
        (404, "The model `x` does not exist.", "does not know this model"),
        (500, "EngineDeadError", "The engine failed"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words(status, message, sentence):
    with FakeServer() as server:
        server.status, server.body = status, json.dumps({"error": {"message": message, "code": status}})
        _, last = await ask(server)
    assert isinstance(last, ReplyFailed)
    assert sentence in last.message and last.values["reason"] == message and last.hint


async def test_nobody_there_is_told():
    with FakeServer() as server:
        gone = server
    _, last = await ask(gone)
    assert isinstance(last, ReplyFailed) and "does not answer" in last.message


@pytest.mark.parametrize("after", [5, 0])
async def test_stop_closes_the_connection_at_once(after):
    """H37: after some chunks, and before the first."""
    script = [(0.02 if after else 5.0, delta(f"{n} ")) for n in range(500)]
    with FakeServer(script) as server:
        events: list = []
        work = asyncio.create_task(chat(Endpoint(server.url), PROMPT, Sampling(), events.append))
        async with asyncio.timeout(5):
            while not server.requests or sum(isinstance(event, ReplyText) for event in events) < after:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        stopped_s = time.monotonic()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        async with asyncio.timeout(2):
            while not server.disconnected_s:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert server.disconnected_s[0] - stopped_s < 0.2
        assert isinstance(events[-1], ReplyDone) and events[-1].reason == "stopped"
        assert (events[-1].ttft_s is not None) == bool(after)
        seen = len(events)
        server.script = answer("fresh")
        fresh, _ = await ask(server)
        assert text_of(fresh) == "fresh"
        assert len(events) == seen


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_the_clock_starts_at_the_first_text_of_any_kind(name):
    """H41 a, H34 c and d."""
    script = [
        (0.005, delta(role="assistant", content="")),
        (0.195, delta(**{name: "Hmm."})),
        (0.7, delta("4")),
        (0, delta(finish="stop")),
        (0, "data: [DONE]\n\n"),
    ]
    with FakeServer(script) as server:
        events, last = await ask(server)
    started_s = events[0].at_s
    assert last.ttft_s == pytest.approx(server.sent_s[1] - started_s, abs=0.02)
    assert last.answer_s == pytest.approx(server.sent_s[2] - started_s, abs=0.02)
    assert last.answer_s - last.ttft_s > 0.5
    assert (text_of(events, reasoning=True), text_of(events)) == ("Hmm.", "4")


async def test_speed_counts_tokens_not_chunks():
    """H41 b: four tokens in each of 25 chunks, 40 ms apart."""
    chunks = [(0.04, delta("word ")) for _ in range(25)]
    with FakeServer([*chunks, (0, delta(finish="stop")), (0, usage(5, 100)), (0, "data: [DONE]\n\n")]) as server:
        _, last = await ask(server)
    assert last.tokens == 100
    assert last.tokens_per_s == pytest.approx(96 / (server.sent_s[24] - server.sent_s[0]), rel=0.05)
    assert 60 < last.tokens_per_s < 120


async def test_a_server_that_counts_as_it_goes_is_believed():
    """The first chunk held one token, the next two four each."""
    chunks = [(0.1, {**delta("x"), "usage": {"prompt_tokens": 5, "completion_tokens": n}}) for n in (1, 5, 9)]
    with FakeServer([*chunks, (0.2, delta(finish="stop")), (0, usage(5, 9)), (0, "data: [DONE]\n\n")]) as server:
        _, last = await ask(server)
    assert last.tokens_per_s == pytest.approx(8 / (server.sent_s[2] - server.sent_s[0]), rel=0.1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [('{"error": {"message": "quota is used up"}}', "quota is used up"), ("<h1>Log in</h1>", "Log in")],
)
async def test_what_is_no_stream_is_told_as_it_is(body, reason):
    with FakeServer([(0, body)]) as server:
        _, last = await ask(server)
    assert reason in last.values["reason"]


async def test_counts_that_are_no_numbers_are_none():
    with FakeServer([(0, delta("x", finish="stop")), (0, usage("5", "9")), (0, "data: [DONE]\n\n")]) as server:
        _, last = await ask(server)
    assert (last.reason, last.tokens, last.prompt_tokens, last.tokens_per_s) == ("stop", None, None, None)


async def test_speculation_of_this_reply():
    figures = {"mean_acceptance_length": 2.5, "num_accepted_draft_tokens": 6, "num_draft_tokens": 16}
    none = {"mean_acceptance_length": 1.0, "num_accepted_draft_tokens": 0, "num_draft_tokens": 0}
    script = [(0, delta("x")), (0, delta(finish="length"))]
    with FakeServer() as server:
        server.script = [*script, (0, usage(5, 9, metrics={"speculative_decoding": figures})), (0, "data: [DONE]\n\n")]
        _, last = await ask(server)
        assert (last.reason, last.accepted, last.drafted, last.mean_accepted) == ("length", 6, 16, 2.5)
        server.script = [*script, (0, usage(5, 9, metrics={"speculative_decoding": none})), (0, "data: [DONE]\n\n")]
        _, last = await ask(server)
        assert (last.accepted, last.drafted, last.mean_accepted) == (0, 0, None)
        server.script = [*script, (0, usage(5, 9)), (0, "data: [DONE]\n\n")]
        _, last = await ask(server)
        assert (last.accepted, last.drafted, last.mean_accepted) == (None, None, None)


async def test_a_proxy_in_the_environment_does_not_come_between(monkeypatch):
    """H23."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with FakeServer(answer("here"), key="secret") as server:
        events, _ = await ask(server, key="secret")
        assert text_of(events) == "here"
        assert await models(Endpoint(server.url + "/v1", key="secret")) == ["fake"]
        with pytest.raises(WorkbenchError, match="refuses the key"):
            await models(Endpoint(server.url))
    assert not Endpoint("https://example.org/v1").is_local
    assert Endpoint("http://localhost:1/v1").is_local
