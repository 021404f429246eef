"""How what serves ends, told the same way whatever it is: an engine of ours, several, or one elsewhere."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbench.engine_events import EngineStopped
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed


@contextmanager
def told(on_event: Callable[[Event], None]) -> Iterator[None]:
    """Failed for an error that leaves this block, EngineStopped when it is cancelled; both go on."""
    try:
        yield
    except WorkbenchError as error:
        on_event(Failed(error.message, error.hint_template, error.values))
        raise
    except asyncio.CancelledError:
        on_event(EngineStopped())
        raise
