"""LoRA adapters of a running engine: load one, unload one. A loaded one answers as a model of its name."""

from typing import Any

import httpx

from workbench.engine import lora
from workbench.engine.client import refused
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Adapter
from workbench.errors import WorkbenchError

LOAD_S = 120


async def load(endpoint: Endpoint, adapter: Adapter) -> None:
    """Load an adapter from a folder that the engine can read. Raises WorkbenchError when it will not."""
    lora.rank_of(adapter.folder)
    told = {"lora_name": adapter.name, "lora_path": str(adapter.folder.absolute())}
    await _post(endpoint, "/v1/load_lora_adapter", told)


async def unload(endpoint: Endpoint, name: str) -> None:
    """Drop an adapter; requests for it are refused from then on."""
    await _post(endpoint, "/v1/unload_lora_adapter", {"lora_name": name})


async def _post(endpoint: Endpoint, path: str, told: dict[str, Any]) -> None:
    try:
        async with endpoint.open(timeout=LOAD_S) as http:
            answer = await http.post(path, json=told)
    except httpx.HTTPError as error:
        raise WorkbenchError(
            "The engine does not answer at {url}.", "Start it again, then send again.", url=endpoint.root
        ) from error
    if answer.status_code == 404 and "Not Found" in answer.text:  # the address itself; an unknown adapter has its name
        raise WorkbenchError(
            "The engine at {url} was started without adapters.", "Start it with at least one LoRA adapter.",
            url=endpoint.root,
        )  # fmt: skip
    if answer.status_code != 200:
        failed = refused(answer.status_code, answer.text)
        raise WorkbenchError(failed.message, failed.hint, **failed.values)
