"""An engine that runs already, somewhere: what it serves, and until when it answers."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from workbench.engine import ends, health
from workbench.engine.endpoint import Endpoint
from workbench.engine_events import EnginePhase, EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event

# A dead machine does not refuse, it is silent; a busy server accepts at once and answers late.
TIMEOUT = httpx.Timeout(10.0, connect=1.5)


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine says of itself: the model's name and its folder there, vLLM's version; empty where not told."""

    name: str
    folder: str = ""
    version: str = ""


async def ask(endpoint: Endpoint) -> Served:
    """The first of its models; a sentence where it does not answer or refuses the key."""
    try:
        async with endpoint.open(timeout=TIMEOUT) as http:
            answer = await http.get("/v1/models")
            if answer.status_code in (401, 403):
                raise WorkbenchError(
                    "The engine at {url} refuses the key.", "Give the key that it expects.", url=endpoint.root
                )
            first = answer.raise_for_status().json()["data"][0]
            version = await http.get("/version")
            told = version.json().get("version", "") if version.status_code == 200 else ""
            return Served(str(first["id"]), str(first.get("root") or ""), str(told))
    except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise WorkbenchError(
            "No model list comes from {url}.", "Check the address and that the server runs.", url=endpoint.root
        ) from error


async def follow(endpoint: Endpoint, on_event: Callable[[Event], None]) -> None:
    """Until it has not answered twice in a row: with the events and the errors of an engine that we run ourselves."""
    began_s = time.monotonic()
    on_event(EnginePhase("starting", began_s))
    with ends.told(on_event):
        served = await ask(endpoint)
        on_event(EngineReady(endpoint.root, endpoint.key, served.name, 0, time.monotonic() - began_s))
        await _silence(endpoint)
        raise WorkbenchError("The engine at {url} answers no more.", "See what happened there.", url=endpoint.root)


async def _silence(endpoint: Endpoint) -> None:
    unanswered = 0
    async with httpx.AsyncClient(
        base_url=endpoint.root, timeout=TIMEOUT, trust_env=not endpoint.is_local,
        limits=httpx.Limits(max_keepalive_connections=0),  # a connection that is open would be waited for longer
    ) as http:  # fmt: skip
        while unanswered < 2:
            await asyncio.sleep(health.PERIOD_S)
            unanswered = 0 if await health.answers(http) else unanswered + 1
