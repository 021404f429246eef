"""Connecting to somebody else's server: what is found there, each way it fails as a sentence, a loss within 5 s."""

import asyncio
import ssl
import time
from contextlib import asynccontextmanager

import pytest
from fake_server import FakeServer, answer, delta, usage

from workbench.engine import address, remote
from workbench.engine.client import chat
from workbench.engine.endpoint import Endpoint
from workbench.engine.sampling import Sampling
from workbench.engine_events import EngineConnected, EngineStopped
from workbench.errors import WorkbenchError
from workbench.events import Failed, ReplyDone, ReplyFailed, ReplyText

PAGE = 'vllm:num_requests_running{engine="0"} 0.0\n'


def vllm(**chosen) -> FakeServer:
    server = FakeServer(answer("hi"), metrics=PAGE, **chosen)
    server.listed = {"owned_by": "vllm", "max_model_len": 4096}
    server.pages["/version"] = (200, '{"version": "0.32.0"}', "application/json")
    return server


async def refusal(url: str, key: str = "", model: str = "") -> WorkbenchError:
    with pytest.raises(WorkbenchError) as caught:
        await remote.probe(Endpoint(url, key, model))
    assert caught.value.hint
    assert "{" not in str(caught.value) + caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("pasted", "found"),
    [
        ("http://m:8000", "http://m:8000"), ("http://m:8000/", "http://m:8000"), ("http://m:8000/v1", "http://m:8000"),
        (" https://m/v1/ ", "https://m"), ("https://m/api/v1/chat/completions", "https://m/api"),
        ("http://m:1/metrics", "http://m:1"), ("m:8000", "http://m:8000"), ("localhost", "http://localhost"),
        ("api.example.org/v1", "https://api.example.org"), ("http://[::1]:8000/v1?x=1#y", "http://[::1]:8000"),
    ],
)  # fmt: skip
def test_addresses_as_people_paste_them(pasted, found):
    assert address.read(pasted) == found


@pytest.mark.parametrize("text", ["", "http://", "ftp://m", "http://m:port", "two words", "http://m:99999"])
def test_what_is_no_address(text):
    with pytest.raises(WorkbenchError, match="no address"):
        address.read(text)


def test_a_key_in_the_address_is_refused():
    for text in ("https://me:secret@m/v1", "https://secret@m"):
        with pytest.raises(WorkbenchError, match="key") as caught:
            address.read(text)
        assert "secret" not in str(caught.value)


async def test_vllm_is_known_by_its_pages():
    with vllm(models=("big", "adapter", "lathe-0123456789ab"), key="k") as server:
        found = await remote.probe(Endpoint(server.url + "/v1", "k"))
    assert found == EngineConnected(server.url, "k", "big", ("big", "adapter"), "0.32.0", True, 4096)
    assert remote.endpoint_of(found) == Endpoint(server.url, "k", "big", vllm=True)


async def test_vllm_behind_a_front_that_shows_only_v1():
    with FakeServer() as server:
        server.listed = {"owned_by": "vllm"}
        server.pages = {"/metrics": (404, "", "text/plain"), "/version": (404, "", "text/plain")}
        found = await remote.probe(Endpoint(server.url))
    assert (found.version, found.has_metrics, found.context) == ("", False, None)
    assert remote.endpoint_of(found).vllm


async def test_another_server_is_none_of_vllm():
    with FakeServer(models=("a", "b"), metrics="llamacpp:tokens 1\n") as server:
        server.listed = {"owned_by": "llamacpp"}
        server.pages["/version"] = (200, '{"version": "9"}', "application/json")
        found = await remote.probe(Endpoint(server.url, model="b"))
    assert (found.model, found.version, found.has_metrics) == ("b", None, False)
    assert not remote.endpoint_of(found).vllm


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ((404, "", "text/plain"), "no OpenAI interface"),
        ((200, "<html>", "text/html"), "web page"),
        ((200, "{}", "application/json"), "does not list its models"),
        ((200, '{"data": [{"name": 1}]}', "application/json"), "does not list its models"),
        ((200, "nonsense", "application/json"), "does not list its models"),
        ((200, '{"data": []}', "application/json"), "has no model"),
        ((500, '{"error": {"message": "out of memory"}}', "application/json"), "out of memory"),
        ((503, "", "text/plain"), "HTTP 503"),
        ((429, '{"error": {"message": "slow down"}}', "application/json"), "slow down"),
        ((301, "", "text/plain"), "sends us on"),
        ((200, "[" * 100_000, "application/json"), "does not list its models"),
        ((200, '{"data": [{"id": ""}]}', "application/json"), "has no model"),
    ],
)
async def test_what_answers_otherwise_is_a_sentence(page, said):
    with FakeServer() as server:
        server.pages["/v1/models"] = page
        assert said in str(await refusal(server.url))


async def test_keys_and_models():
    with vllm(key="right") as server:
        assert "asks for a key" in str(await refusal(server.url))
        assert "refuses the key" in str(await refusal(server.url, "wrong"))
        error = await refusal(server.url, "right", "other")
        assert "no model called other" in str(error) and "fake" in error.hint


@pytest.mark.parametrize("key", ["sk-secret\nX: y", "sk-secrét", "sk-secret\x00", "密钥"])
async def test_a_key_that_no_request_can_carry_is_refused_without_being_told(key):
    with pytest.raises(WorkbenchError, match="key") as caught:
        await remote.probe(Endpoint("http://127.0.0.1:1", key))
    assert "secr" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("key", ["right\n", " right ", "right\r\n"])
async def test_a_key_copied_with_the_end_of_its_line_is_the_key(key):
    with vllm(key="right") as server:
        found = await remote.probe(Endpoint(server.url, key))
        assert found.key == "right"


async def test_nobody_there_and_machines_that_do_not_exist():
    with FakeServer() as server:
        url = server.url
    assert "Nothing listens" in str(await refusal(url))
    assert "not known" in str(await refusal("http://no-such-machine.invalid:80"))


async def test_https_where_none_is_spoken_and_the_other_way(tmp_path):
    with FakeServer() as server:
        error = await refusal(server.url.replace("http:", "https:"))
    assert "does not speak HTTPS" in str(error) and "http://" in error.hint
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    async with listening(silence, ssl=context) as there:
        assert "certificate" in str(await refusal(f"https://{there}"))


@asynccontextmanager
async def listening(answer, **more):
    """Where something listens that hands each connection to `answer`; the connections end with it."""
    tasks = []

    async def take(reader, writer):
        tasks.append(asyncio.current_task())
        await answer(reader, writer)
        await reader.read()  # until the other side leaves
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, **more)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)


async def silence(reader, writer):
    pass


def certificate(folder):
    """A certificate that nobody vouches for."""
    import subprocess

    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "1", "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1],
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


async def test_what_speaks_no_http():
    async def greet(reader, writer):
        writer.write(b"SSH-2.0-x\r\n")
        writer.write_eof()

    async with listening(greet) as there:
        assert "no web server" in str(await refusal(f"http://{there}"))


async def test_a_silent_server(monkeypatch):
    monkeypatch.setattr(remote, "TIMEOUT", 0.2)
    async with listening(silence) as there:
        assert "too long" in str(await refusal(f"http://{there}"))


@pytest.mark.parametrize("pieces", [b" ", b"x" * 65536])
async def test_an_answer_that_never_ends(pieces, monkeypatch):
    monkeypatch.setattr(remote, "WHOLE_S", 0.3)

    async def answer_on(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while not writer.is_closing():
            writer.write(pieces)
            await asyncio.sleep(0.05)

    async with listening(answer_on) as there:
        assert "too long" in str(await refusal(f"http://{there}"))


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "other://127.0.0.1:1"])
async def test_a_proxy_that_cannot_be_used_is_a_sentence(proxy, monkeypatch):
    monkeypatch.setenv("all_proxy", proxy)
    assert "proxy" in str(await refusal("http://far.example"))


async def test_a_proxy_stands_between_us_and_others_only(monkeypatch):
    with vllm() as server, FakeServer() as proxy:
        proxy.pages["http://far.example/v1/models"] = (200, '{"data": [{"id": "m"}]}', "application/json")
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert (await remote.probe(Endpoint(server.url))).model == "fake"
        assert proxy.asked == []
        assert (await remote.probe(Endpoint("http://far.example"))).model == "m"
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert await refusal("http://far.example")


async def test_fields_of_vllm_go_to_vllm_alone():
    chosen = Sampling(9, 0.5, 0.9, top_k=5, repetition_penalty=1.1, seed=3, min_p=0.1)
    with FakeServer(answer("hi")) as server:
        server.strict = True
        for known in (True, False):
            last = await chat(Endpoint(server.url, model="m", vllm=known), [], chosen, lambda event: None, priority=1)
            assert isinstance(last, ReplyDone) is not known
    ours, theirs = server.requests
    assert ours["top_k"] == 5 and ours["priority"] == 1 and ours["stream_options"]["continuous_usage_stats"]
    assert {name: theirs[name] for name in ("max_tokens", "temperature", "top_p", "seed")} == {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3,
    }  # fmt: skip


async def test_a_model_that_wants_the_limit_under_its_newer_name_gets_it():
    with FakeServer(answer("hi")) as server:
        server.refused["max_tokens"] = "Unsupported parameter: use 'max_completion_tokens' instead."
        last = await chat(Endpoint(server.url, model="m", vllm=False), [], Sampling(9), lambda event: None)
        assert isinstance(last, ReplyDone)
        assert [request.get("max_completion_tokens") for request in server.requests] == [None, 9]
        assert "max_tokens" not in server.requests[1]
        server.refused["max_completion_tokens"] = "nor max_completion_tokens"
        last = await chat(Endpoint(server.url, model="m", vllm=False), [], Sampling(9), lambda event: None)
        assert isinstance(last, ReplyFailed) and len(server.requests) == 4


def call(index: int, name: str | None, arguments: str) -> dict:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return delta(tool_calls=[{"index": index, "function": function}])


async def test_calls_of_tools_are_shown_as_what_they_are():
    script = [
        (0.0, delta("Let me see. ")),
        (0.0, call(0, "weather", "")), (0.0, call(0, None, '{"city": ')), (0.0, call(0, None, '"Oslo"}')),
        (0.0, call(1, "time", "{}")),
        (0.0, delta(finish="tool_calls")), (0.0, usage(3, 9)), (0.0, "data: [DONE]\n\n"),
    ]  # fmt: skip
    events = []
    with FakeServer(script) as server:
        last = await chat(Endpoint(server.url, model="m"), [], Sampling(), events.append)
    text = "".join(event.text for event in events if isinstance(event, ReplyText))
    assert text == 'Let me see. `weather`\n```json\n{"city": "Oslo"}\n```\n`time`\n```json\n{}\n```\n'
    assert last.reason == "tool_calls" and last.tokens == 9


async def attended(server: FakeServer, key: str = "") -> tuple[asyncio.Task, list]:
    events, begun = [], asyncio.Event()

    def take(event) -> None:
        events.append(event)
        begun.set()

    task = asyncio.create_task(remote.attend(Endpoint(server.url, key), take))
    await begun.wait()
    return task, events


async def test_a_server_that_ends_is_lost_within_5_s():
    for make in (vllm, FakeServer):
        with make() as server:
            task, events = await attended(server)
            await asyncio.sleep(0.1)
            assert len(events) == 1 and isinstance(events[0], EngineConnected)
        ended_s = time.monotonic()
        with pytest.raises(WorkbenchError, match="does not answer any more"):
            await task
        assert time.monotonic() - ended_s < 5
        assert isinstance(events[-1], Failed)


async def test_a_dead_engine_and_a_changed_key_are_losses_and_a_slow_answer_is_none(monkeypatch):
    monkeypatch.setattr(remote, "PERIOD_S", {True: 0.05, False: 0.05})
    monkeypatch.setattr(remote, "AGAIN_S", 0.05)
    with vllm() as server:
        task, _ = await attended(server)
        server.pages["/health"] = (429, "", "text/plain")
        await asyncio.sleep(0.3)
        assert not task.done()
        server.pages["/health"] = (503, "", "text/plain")
        with pytest.raises(WorkbenchError, match="does not answer any more"):
            await task
    with FakeServer(key="k") as server:
        task, _ = await attended(server, "k")
        server.key = "another"
        with pytest.raises(WorkbenchError, match="key no longer"):
            await task


@pytest.mark.parametrize("make", [vllm, FakeServer])
async def test_another_model_at_the_address_is_told_before_a_request_fails(make, monkeypatch):
    monkeypatch.setattr(remote, "PERIOD_S", {True: 0.02, False: 0.02})
    with make(models=("small", "large")) as server:
        task, events = await attended(server)
        server.models = ["large", "small"]  # ours is still there
        server.pages["/v1/models"] = (500, "", "text/plain")  # and for a moment nothing is listed
        await asyncio.sleep(0.3)
        del server.pages["/v1/models"]
        assert not task.done()
        server.models = ["next"]
        with pytest.raises(WorkbenchError, match="has small no longer") as caught:
            await asyncio.wait_for(task, 5)
        assert "It has: next." in caught.value.hint and isinstance(events[-1], Failed)


async def test_leaving_a_server_ends_nothing_there():
    with vllm() as server:
        task, events = await attended(server)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(events[-1], EngineStopped)
        assert (await remote.probe(Endpoint(server.url))).model == "fake"
