"""What guards have recorded of their trees: from that alone what a killed guard leaves is ended."""

import asyncio
import json
from collections.abc import Collection

from workbench import leftovers


def name(pids: Collection[int]) -> bool:
    """Whether the records name all of these processes."""
    records = [json.loads(record.read_text()) for record in leftovers.folder().glob("*.json")]
    return set(pids) <= {pid for record in records for pid, *_ in record["processes"]}


async def until_named(pids: Collection[int], limit_s: float = 20.0) -> None:
    """A guard looks twice a second, on a busy machine less often."""
    async with asyncio.timeout(limit_s):
        while not name(pids):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
