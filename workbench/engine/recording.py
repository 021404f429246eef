"""An engine's figures while it works, kept and written as CSV at the end."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from workbench import named_files
from workbench.engine import monitor
from workbench.measure import table
from workbench.runs import POINTS, EngineRun


@asynccontextmanager
async def recorded(name: str, file: Path | None, here: bool = True) -> AsyncIterator[EngineRun]:
    """A run to which the block gives the engine's events; at the block's end, however it ends, `file` gets its figures.

    None writes nothing. What the run no longer keeps is not in the file: of samples the last hour. Of a
    front the legs' figures are written. With `here` this machine's devices are recorded too. Raises WorkbenchError
    before the block where `file` cannot be written.
    """
    if file:
        named_files.require(file)
    run = EngineRun()
    readings: deque[monitor.DeviceSample] = deque(maxlen=POINTS)
    reading = asyncio.ensure_future(monitor.device_samples(readings.append)) if file and here else None
    try:
        yield run
    finally:
        if reading:
            reading.cancel()
        if file:
            named_files.write_text(table.text(run.legs or {name: run}, readings), file)
