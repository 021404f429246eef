"""Talks to any server with OpenAI's interface: which models it has, and a streamed chat."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import httpx

from workbench.engine.endpoint import Endpoint
from workbench.engine.event_stream import EventStream
from workbench.engine.sampling import Sampling
from workbench.errors import WorkbenchError
from workbench.events import Event, ReplyDone, ReplyFailed, ReplyStarted, ReplyText
from workbench.measure.timing import TokenTimes

LIMIT = "max_completion_tokens"  # what OpenAI's newer models want max_tokens to be called
HEAD = 4096  # bytes of what is no stream
LINGER_S = 0.5  # for a server that keeps the connection after the last event


async def models(endpoint: Endpoint) -> list[str]:
    """The names of the models that the server has."""
    try:
        async with endpoint.open(timeout=5) as http:
            answer = await http.get("/v1/models")
            answer.raise_for_status()
            return [model["id"] for model in answer.json()["data"]]
    except httpx.HTTPStatusError as error:
        failed = refused(error.response.status_code, error.response.text)
        raise WorkbenchError(failed.message, failed.hint, **failed.values) from error
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise WorkbenchError(
            "No model list comes from {url}.", "Check the address and that the server runs.", url=endpoint.root
        ) from error


async def chat(
    endpoint: Endpoint,
    messages: list[dict[str, Any]],
    sampling: Sampling,
    on_event: Callable[[Event], None],
    priority: int | None = None,
    http: httpx.AsyncClient | None = None,
) -> ReplyDone | ReplyFailed:
    """Stream one answer as events; returns the last of them. What went wrong with the server is an event, no exception.

    `http` is a client to ask through, which stays open; making one for each of many answers takes time from the others.
    A `priority`, the lowest first, is for engines that schedule by priority; others refuse requests with one.
    Cancelling closes the connection, which makes the engine drop the request, reports ReplyDone("stopped") and then
    goes on as a cancellation.
    """
    client = endpoint.open() if http is None else nullcontext(http)
    stream = _Stream(TokenTimes(time.monotonic()), on_event)
    on_event(ReplyStarted(stream.times.started_s))
    options = {"include_usage": True}
    if endpoint.vllm:
        # Tells how many tokens the first chunk held.
        options["continuous_usage_stats"] = True
    body = {
        "model": endpoint.model,
        "messages": messages,
        **(sampling if endpoint.vllm else sampling.plain()).chosen(),
        "stream": True,
        "stream_options": options,
    }
    if priority is not None and endpoint.vllm:
        body["priority"] = priority
    try:
        async with client as opened:
            last = await _answer(opened, body, stream)
    except asyncio.CancelledError:
        on_event(stream.done("stopped"))
        raise
    except httpx.ConnectError:
        last = ReplyFailed(
            "The engine does not answer at {url}.", "Start it again, then send again.", {"url": endpoint.root}
        )
    except httpx.TimeoutException:
        last = ReplyFailed("The engine has been silent for too long.", "Stop it and start it again.")
    except (httpx.HTTPError, OSError) as error:
        last = _broken(str(error) or type(error).__name__)
    on_event(last)
    return last


async def _answer(http: httpx.AsyncClient, body: dict[str, Any], stream: "_Stream") -> ReplyDone | ReplyFailed:
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code == 200:
            return await stream.read(answer)
        told = (await answer.aread()).decode(errors="replace")
    if answer.status_code == 400 and LIMIT in told and "max_tokens" in body:
        renamed = {LIMIT if name == "max_tokens" else name: value for name, value in body.items()}
        return await _answer(http, renamed, stream)
    return refused(answer.status_code, told)


class _Stream:
    """One answer as it comes in."""

    def __init__(self, times: TokenTimes, on_event: Callable[[Event], None]):
        self.times = times
        self._on_event = on_event
        self._usage: dict[str, int] = {}
        self._speculation: dict[str, Any] = {}
        self._reason = ""
        self._half = {False: "", True: ""}
        self._calling: int | None = None  # which call of a tool is being written

    async def read(self, answer: httpx.Response) -> ReplyDone | ReplyFailed:
        """Read to the end. HTTP 200 and [DONE] prove nothing: an engine that died says so in a chunk before."""
        events, last = EventStream(), None
        head, told = b"", False
        try:
            # The body is read to its end even after the last event: leaving it would abandon httpx's generators to
            # the garbage collector, which may run outside the loop.
            async with asyncio.timeout(None) as patience:
                async for raw in answer.aiter_bytes():
                    at_s = time.monotonic()
                    for data in events.feed(raw):
                        told = True
                        last = last or self._event(data, at_s)
                    head = head if told else (head + raw)[:HEAD]
                    if last and patience.when() is None:
                        patience.reschedule(asyncio.get_running_loop().time() + LINGER_S)
        except (TimeoutError, httpx.HTTPError):
            if last is None:
                raise
        if last is None and self._reason:
            last = self.done(self._reason)
        if last is None and head.strip() and not told:  # no stream: a page, or an error that calls itself a success
            last = _broken(refused(200, head.decode(errors="replace")).values["reason"])
        return last or ReplyFailed(
            "The answer broke off: the engine closed the connection.", "Look at its log, then send again."
        )

    def _event(self, data: str, at_s: float) -> ReplyDone | ReplyFailed | None:
        """Take one event's data; the end of the answer if it is that."""
        if data == "[DONE]":
            return self.done(self._reason or "stop")
        try:
            chunk = json.loads(data)
            if error := chunk.get("error") or (chunk.get("object") == "error" and chunk):
                return _broken(_reason_of(error))
            self._take(chunk, at_s)
        except (ValueError, AttributeError, LookupError, TypeError):
            return _broken(data[:200])
        return None

    def _take(self, chunk: dict[str, Any], at_s: float) -> None:
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self._text(delta.get("reasoning") or delta.get("reasoning_content") or "", at_s, reasoning=True)
            self._text(delta.get("content") or delta.get("refusal") or "", at_s, reasoning=False)
            for call in delta.get("tool_calls") or ():
                self._tool_call(call, at_s)
            if reason := choice.get("finish_reason"):
                self._end_tool_call(at_s)
                self._reason = reason
        if usage := chunk.get("usage"):
            self._usage = {name: count for name, count in usage.items() if isinstance(count, int)}
            # The closing summary comes after the last token: its time says nothing about speed.
            if chunk.get("choices"):
                self.times.count(at_s, self._usage.get("completion_tokens") or 0)
        if metrics := chunk.get("metrics"):
            self._speculation = metrics.get("speculative_decoding") or {}

    def _tool_call(self, call: dict[str, Any], at_s: float) -> None:
        """A call of a tool is the answer as well: written as the code that it is, piece by piece."""
        function = call.get("function") or {}
        index = call.get("index", 0)
        if index != self._calling:
            self._end_tool_call(at_s)
            self._on_event(ReplyText(f"`{function.get('name') or '?'}`\n```json\n", at_s))
            self._calling = index
        self._text(function.get("arguments") or "", at_s, reasoning=False)

    def _end_tool_call(self, at_s: float) -> None:
        if self._calling is not None:
            self._on_event(ReplyText("\n```\n", at_s))
            self._calling = None

    def _text(self, text: str, at_s: float, reasoning: bool) -> None:
        if not text:
            return
        text = self._half[reasoning] + text
        # A server may escape a character beyond the 16-bit plane as two halves and cut between them.
        half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        self._half[reasoning] = half
        if whole := text.removesuffix(half).encode("utf-16", "surrogatepass").decode("utf-16", "replace"):
            self.times.text(at_s, reasoning)
            self._on_event(ReplyText(whole, at_s, reasoning))

    def done(self, reason: str) -> ReplyDone:
        tokens = self._usage.get("completion_tokens")
        speculation = self._speculation
        drafted = speculation.get("num_draft_tokens")
        return ReplyDone(
            reason=reason,
            ttft_s=self.times.ttft_s,
            answer_s=self.times.answer_s,
            total_s=time.monotonic() - self.times.started_s,
            prompt_tokens=self._usage.get("prompt_tokens"),
            tokens=tokens,
            tokens_per_s=self.times.tokens_per_s(tokens),
            accepted=speculation.get("num_accepted_draft_tokens"),
            drafted=drafted,
            # vLLM reports a length of 1 when nothing was drafted: that measures nothing.
            mean_accepted=speculation.get("mean_acceptance_length") if drafted else None,
        )


def _broken(reason: str) -> ReplyFailed:
    return ReplyFailed(
        "The answer broke off: {reason}", "Look at the engine's log, then send again.", {"reason": reason}
    )


def refused(status: int, text: str) -> ReplyFailed:
    """What a status other than 200 means, in the server's own words where it has some."""
    try:
        answer = json.loads(text)
        reason = _reason_of(answer.get("error") or answer.get("detail") or answer)
    except (ValueError, AttributeError):
        reason = text.strip()[:300]
    reason = reason or f"HTTP {status}"
    if status in (401, 403):
        return ReplyFailed("The server refuses the key: {reason}", "Give the key that it expects.", {"reason": reason})
    if status == 404:
        return ReplyFailed(
            "The server does not know this model or address: {reason}",
            "Choose one of the models that it lists.",
            {"reason": reason},
        )
    if status == 400 and ("context length" in reason or "max_model_len" in reason or "maximum model length" in reason):
        return ReplyFailed(
            "The conversation does not fit the model's context: {reason}",
            "Lower the answer's length, shorten the message or begin a new chat.",
            {"reason": reason},
        )
    if status < 500:
        return ReplyFailed(
            "The engine refused the request: {reason}",
            "Change the message or its settings and send again.",
            {"reason": reason},
        )
    return ReplyFailed(
        "The engine failed: {reason}", "Look at its log; start it again if it has ended.", {"reason": reason}
    )


def _reason_of(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)
