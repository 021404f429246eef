"""A server that somebody else runs: what answers at an address, and whether it still does."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from workbench.engine import ends
from workbench.engine.client import refused
from workbench.engine.endpoint import Endpoint
from workbench.engine.metrics import is_vllm
from workbench.engine_events import EngineConnected
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.words import Sentence

TIMEOUT = httpx.Timeout(15, connect=5)
# A loss is to be said within 5 s, also where packets just vanish: two polls in a row that reach nobody.
POLL = httpx.Timeout(5, connect=1)
PERIOD_S = {True: 1.0, False: 2.0}  # by whether it is vLLM, whose /health costs nothing
LISTED = 5  # polls of vLLM's from one look at its models to the next
AGAIN_S = 0.5
WHOLE_S = 20.0  # for an answer that comes in drops, or never ends
GATEWAY = (502, 503, 504)  # what a proxy says when nobody is behind it, and vLLM when its engine is dead
PROOF = re.compile(r"lathe-[0-9a-f]{12}")  # the second name of an engine that another Lathe started


async def probe(endpoint: Endpoint) -> EngineConnected:
    """What answers there. Raises WorkbenchError with what is wrong and the next step."""
    async with _told(endpoint), asyncio.timeout(WHOLE_S), endpoint.open(timeout=TIMEOUT) as http:
        answer = await http.get("/v1/models")
        listed = _models(answer, endpoint)
        version, metrics = await asyncio.gather(_asked(http, "/version"), _asked(http, "/metrics"))
    names = tuple(each["id"] for each in listed if each["id"] and not PROOF.fullmatch(each["id"]))
    if not names:
        raise WorkbenchError("The server at {url} has no model.", "Start one there first.", url=endpoint.root)
    if endpoint.model and endpoint.model not in names:
        raise WorkbenchError(
            "The server at {url} has no model called {name}.", "It has: {names}.",
            url=endpoint.root, name=endpoint.model, names=", ".join(names[:10]),
        )  # fmt: skip
    model = endpoint.model or names[0]
    entry = next(each for each in listed if each["id"] == model)
    shows = metrics is not None and is_vllm(metrics.text)
    vllm = shows or entry.get("owned_by") == "vllm"
    context = entry.get("max_model_len")
    return EngineConnected(
        url=endpoint.root,
        key=endpoint.key,
        model=model,
        models=names,
        version=_version(version) if vllm else None,
        has_metrics=shows,
        context=context if type(context) is int else None,
    )


def endpoint_of(found: EngineConnected) -> Endpoint:
    """Where to ask what answers there."""
    return Endpoint(found.url, found.key, found.model, vllm=found.version is not None)


def description(found: EngineConnected) -> Sentence:
    """What it is and where."""
    values = {"url": found.url, "version": found.version}
    if found.version:
        return Sentence("vLLM {version} at {url}", values)
    if found.version == "":
        return Sentence("vLLM at {url}", values)
    return Sentence("OpenAI-compatible server at {url}", values)


def warning(endpoint: Endpoint) -> Sentence | None:
    """That the key can be read on its way, where that is so."""
    if endpoint.key and endpoint.root.startswith("http://") and not endpoint.is_local:
        return Sentence("The key goes to {url} unencrypted.", {"url": endpoint.root})
    return None


async def attend(endpoint: Endpoint, on_event: Callable[[Event], None]) -> None:
    """Connect and stay with the server until it is lost or this is cancelled, which both only end the attention.

    Reports EngineConnected, then Failed within 5 s of the loss, which is also raised. Cancelling reports EngineStopped.
    """
    with ends.told(on_event):
        found = await probe(endpoint)
        on_event(found)
        await until_lost(endpoint_of(found))


async def until_lost(endpoint: Endpoint) -> None:
    """Raise WorkbenchError when the server cannot be reached any more, or has the model or takes the key no longer."""
    missed = polls = 0
    # Each poll opens a connection of its own: that a busy server takes it tells it from one that is gone.
    async with endpoint.open(timeout=POLL, keep=False) as http:
        while True:
            await asyncio.sleep(AGAIN_S if missed else PERIOD_S[endpoint.vllm])
            polls += 1
            path = "/health" if endpoint.vllm and (missed or polls % LISTED) else "/v1/models"
            try:
                answer = await http.get(path)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError):
                missed += 1
            except httpx.HTTPError:  # busy, or one answer broke
                missed = 0
            else:
                status = answer.status_code
                if path == "/v1/models":
                    _check_model(answer, endpoint)
                if status in (401, 403):
                    raise WorkbenchError(
                        "The server at {url} takes the key no longer.", "Connect again with the key that it expects.",
                        url=endpoint.root,
                    )  # fmt: skip
                missed = missed + 1 if status in GATEWAY else 0
            if missed == 2:
                raise WorkbenchError(
                    "The server at {url} does not answer any more.", "Connect again when it runs.", url=endpoint.root
                )


def _check_model(answer: httpx.Response, endpoint: Endpoint) -> None:
    """Raise WorkbenchError where the list of models is one without ours: another was started at that address."""
    try:
        names = [each["id"] for each in _models(answer, endpoint)]
    except WorkbenchError:  # no list: of that says its status more
        return
    if names and endpoint.model not in names:
        raise WorkbenchError(
            "The server at {url} has {name} no longer.", "Connect again. It has: {names}.",
            url=endpoint.root, name=endpoint.model, names=", ".join(names[:10]),
        )  # fmt: skip


@asynccontextmanager
async def _told(endpoint: Endpoint) -> AsyncIterator[None]:
    """What goes wrong on the way to the server, as a sentence."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        message, hint = _sentence(error)
        reason = str(error) or type(error).__name__
        raise WorkbenchError(message.template, hint.template, url=endpoint.root, reason=reason) from error


def _sentence(error: BaseException) -> tuple[Sentence, Sentence]:
    """The sentence and the next step."""
    causes = list(_causes(error))
    if isinstance(error, httpx.ProxyError):
        return Sentence("The proxy does not let us to {url}."), Sentence(
            "Check the proxy settings, or add the server to NO_PROXY."
        )
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
        return (
            Sentence("The certificate of {url} cannot be trusted."),
            Sentence("Install its authority's certificate in this system, or name its file in SSL_CERT_FILE."),
        )
    if any(isinstance(each, ssl.SSLError) for each in causes):
        return Sentence("{url} does not speak HTTPS."), Sentence("Write the address with http://.")
    if any(isinstance(each, socket.gaierror) for each in causes):
        return Sentence("The machine in {url} is not known."), Sentence("Check how it is written, and the network.")
    if isinstance(error, httpx.ConnectTimeout):
        return Sentence("Nothing answers at {url}."), Sentence("Check the address, the network and the firewall there.")
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return Sentence("The server at {url} takes too long to answer."), Sentence("Try again when it is less busy.")
    if isinstance(error, httpx.ConnectError):
        return Sentence("Nothing listens at {url}."), Sentence("Check the port, and that the server runs.")
    return Sentence("What answers at {url} is no web server: {reason}"), Sentence(
        "Check the port; HTTPS needs https:// before it."
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _models(answer: httpx.Response, endpoint: Endpoint) -> list[dict[str, Any]]:
    """The server's models as it lists them; a sentence for every other answer."""
    values: dict[str, Any] = {"url": endpoint.root}
    status = answer.status_code
    if status in (401, 403):
        if not endpoint.key:
            raise WorkbenchError("The server at {url} asks for a key.", "Give its key.", **values)
        failed = refused(status, answer.text)
        raise WorkbenchError(failed.message, failed.hint, **failed.values)
    if answer.is_redirect:
        place = answer.url.join(answer.headers.get("location", "?"))
        values["place"] = str(place.copy_with(query=None)).rstrip("/").removesuffix("/v1/models")
        raise WorkbenchError("{url} sends us on to {place}.", "Give that address.", **values)
    if status == 404:
        raise WorkbenchError(
            "There is no OpenAI interface at {url}.", "Check the address: /v1/models must be below it.", **values
        )
    if status != 200:
        failed = refused(status, answer.text)
        raise WorkbenchError(failed.message, failed.hint, **failed.values)
    if "html" in answer.headers.get("content-type", ""):
        raise WorkbenchError(
            "A web page answers at {url}, no model server.", "Check the address and the port.", **values
        )
    try:
        found = answer.json()["data"]
        if all(isinstance(each["id"], str) for each in found):
            return list(found)
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise WorkbenchError(
        "What answers at {url} does not list its models as OpenAI's interface does.",
        "Check the address and the port.", **values,
    )  # fmt: skip


async def _asked(http: httpx.AsyncClient, path: str) -> httpx.Response | None:
    """A page that not every server has."""
    try:
        answer = await http.get(path)
    except httpx.HTTPError:
        return None
    return answer if answer.status_code == 200 else None


def _version(answer: httpx.Response | None) -> str:
    try:
        found = answer.json()["version"] if answer else ""
    except (ValueError, LookupError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
