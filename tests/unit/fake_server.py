"""F-SSE: a small OpenAI-compatible server that plays a scripted stream and remembers what it was asked."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

DROP = object()  # in a script: cut the connection without an end


def delta(content: str | None = None, finish: str | None = None, **fields: Any) -> dict:
    """One chunk with text, or with an end, or with other fields of the delta."""
    text = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": {**text, **fields}, "finish_reason": finish}]}


def usage(prompt: int, completion: int, **more: Any) -> dict:
    """The closing summary."""
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}, **more}


def answer(*words: str, delay_s: float = 0.0) -> list:
    """A whole script: each word a chunk, then the end as vLLM sends it."""
    return [
        (delay_s, delta(role="assistant", content="")),
        *((delay_s, delta(word)) for word in words),
        (0.0, delta(finish="stop")),
        (0.0, usage(11, len(words))),
        (0.0, "data: [DONE]\n\n"),
    ]


OPENAI = {
    "model", "messages", "stream", "stream_options", "max_tokens", "temperature", "top_p", "seed", "stop", "n", "tools",
    "tool_choice", "response_format", "logprobs", "top_logprobs",
}  # fmt: skip


def strange(body: dict) -> str:
    """The fields of a request that OpenAI's interface has not."""
    options = {f"stream_options.{name}" for name in body.get("stream_options", {}) if name != "include_usage"}
    return ", ".join(sorted((set(body) - OPENAI) | options))


async def _turns() -> None:
    """A few turns of the loop: for tasks to begin or end and for sockets to close."""
    for _ in range(5):
        await asyncio.sleep(0)


class FakeServer:
    """Runs in a thread of its own, so that a blocked test loop cannot slow its script.

    `script` is a list of (delay in seconds, chunk): a dict becomes one event, text and bytes go out as they are.
    `pages` are further answers by path: (status, text, content type); they come before all else. `listed` are more
    fields of each model in the list. A `strict` server refuses fields that OpenAI's interface has not; `refused` has
    what it says to certain fields.
    Set `script`, `metrics`, `status` and `body` at any time; `requests` holds the chats' bodies, `headers` theirs,
    `sent_s` the monotonic time of each chunk of the last chat, `disconnected_s` those at which a client left before
    the end.
    """

    def __init__(self, script: Sequence = (), *, metrics: str = "", models: Sequence[str] = ("fake",), key: str = ""):
        self.script, self.metrics, self.models, self.key = list(script), metrics, list(models), key
        self.status, self.body = 200, ""
        self.pages: dict[str, tuple[int, str, str]] = {}
        self.listed: dict[str, Any] = {}
        self.strict = False
        self.refused: dict[str, str] = {}
        self.asked: list[str] = []
        self.requests: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.sent_s: list[float] = []
        self.disconnected_s: list[float] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "FakeServer":
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def _run(self, ready: threading.Event) -> None:
        async def serve() -> None:
            self._stopping = asyncio.Event()
            server = await asyncio.start_server(self._client, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await self._stopping.wait()
            server.close()
            await _turns()  # what was just accepted becomes a client first
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            for writer in self._writers:
                writer.transport.abort()
            await _turns()

        self._loop.run_until_complete(serve())
        self._loop.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._request(reader, writer):
                pass
        with suppress(ConnectionError):
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        sent = await reader.readexactly(int(headers.get("content-length", 0)))
        path = first.split(" ")[1]
        self.asked.append(path)
        if path in self.pages:
            return self._reply(writer, *self.pages[path])
        if path.startswith("/v1/") and self.key and headers.get("authorization") != f"Bearer {self.key}":
            return self._reply(writer, 401, json.dumps({"error": {"message": "Unauthorized"}}))
        if path == "/v1/models":
            return self._reply(writer, 200, json.dumps({"data": [{"id": name, **self.listed} for name in self.models]}))
        if path == "/metrics":
            return self._reply(writer, 200, self.metrics, "text/plain")
        if path != "/v1/chat/completions":
            return self._reply(writer, 200 if path == "/health" else 404, "")
        self.requests.append(json.loads(sent))
        self.headers.append(headers)
        if self.strict and (unknown := strange(self.requests[-1])):
            return self._reply(writer, 400, json.dumps({"error": {"message": f"Unrecognized field: {unknown}"}}))
        if said := next((said for name, said in self.refused.items() if name in self.requests[-1]), ""):
            return self._reply(writer, 400, json.dumps({"error": {"message": said}}))
        if self.status != 200:
            return self._reply(writer, self.status, self.body)
        await self._play(reader, writer)
        return False

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(reader.read(1))
        try:
            due_s, self.sent_s = time.monotonic(), []
            for delay_s, chunk in list(self.script):
                due_s += delay_s
                with suppress(TimeoutError, ConnectionError):  # a client that resets has left as well
                    await asyncio.wait_for(asyncio.shield(gone), max(0.0, due_s - time.monotonic()))
                if gone.done():
                    self.disconnected_s.append(time.monotonic())
                    return
                if chunk is DROP:
                    writer.transport.abort()
                    return
                if isinstance(chunk, dict):
                    chunk = f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
                raw = chunk.encode() if isinstance(chunk, str) else chunk
                self.sent_s.append(time.monotonic())
                writer.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            gone.cancel()

    def _reply(self, writer: asyncio.StreamWriter, status: int, text: str, kind: str = "application/json") -> bool:
        raw = text.encode()
        writer.write(
            f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw
        )
        return True
