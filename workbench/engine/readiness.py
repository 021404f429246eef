"""Waits at an engine's port until what answers there proved to be ours, and warms it up."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import httpx

from workbench.engine import command, health
from workbench.engine.client import refused
from workbench.engine.output import Output
from workbench.events import Event, Note

POLL_S = 0.25
SILENCE_S = 30.0
STRANGER_S = 5.0
WARMUP_LIMIT_S = 120.0


async def until_ours(
    client: httpx.AsyncClient, port: int, key: str, output: Output, on_event: Callable[[Event], None]
) -> None:
    """Return when the engine with this key answers. Until then say when it is silent, or a stranger answers."""
    told_silence_s = 0.0
    answered_s = None
    while True:
        await asyncio.sleep(POLL_S)
        now_s = time.monotonic()
        if await health.answers(client):
            if await _is_ours(client, key):
                return
            if answered_s is None:
                answered_s = now_s
            elif now_s - answered_s > STRANGER_S:
                answered_s = float("inf")  # once is enough
                on_event(
                    Note("Something answers on port {port}, but it is not this engine.", {"port": port}, "warning")
                )
        silent_s = now_s - output.heard_s
        if silent_s < SILENCE_S:
            told_silence_s = 0.0
        elif silent_s - told_silence_s >= SILENCE_S:
            told_silence_s = silent_s
            on_event(Note("Still loading, no output for {seconds} s.", {"seconds": int(silent_s)}))


async def warm_up(client: httpx.AsyncClient, key: str, name: str, on_event: Callable[[Event], None]) -> float | None:
    """Seconds of a first short request, which is several times slower than the next; None when it failed."""
    body = {"model": name, "prompt": "one two three one two three one two", "max_tokens": 8, "temperature": 0}
    began_s = time.monotonic()
    try:
        reply = await client.post("/v1/completions", json=body, headers=_authorization(key), timeout=WARMUP_LIMIT_S)
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__  # a timeout says nothing of itself
        on_event(Note("The warm-up request failed: {reason}", {"reason": reason}, "warning"))
        return None
    if reply.status_code != 200:
        failed = refused(reply.status_code, reply.text)
        on_event(Note(failed.message, failed.values, "warning"))
        return None
    return time.monotonic() - began_s


async def _is_ours(client: httpx.AsyncClient, key: str) -> bool:
    """It lists the name of this run to our key, and refuses a request without it."""
    with suppress(httpx.HTTPError, ValueError, LookupError, TypeError):
        listed = await client.get("/v1/models", headers=_authorization(key))
        names = {model["id"] for model in listed.json()["data"]}
        if command.proof_name(key) in names:
            return (await client.get("/v1/models")).status_code == 401
    return False


def _authorization(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
