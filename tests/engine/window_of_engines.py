"""Child of test_engine_tree: a stand-in for the window, which serves the given folders at once and tells by lines.

`{"ready": folder, "pid": server, "notes": […], …}` when an engine answers; `{"failed": folder, "message": …}` when it
ended by itself.
"""

import asyncio
import json
import sys
from pathlib import Path

from workbench.engine import serve
from workbench.engine.profile import Profile, Speculation
from workbench.errors import WorkbenchError
from workbench.events import EngineReady, Event, Note
from workbench.settings import Settings


async def engine(folder: Path) -> None:
    notes = []

    def tell(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.message)
        if isinstance(event, EngineReady):
            told = {"ready": folder.name, "pid": event.pid, "url": event.url, "key": event.key, "notes": notes}
            print(json.dumps(told), flush=True)

    profile = Profile(folder, kv_gib=0.25, speculation=Speculation())
    try:
        await serve.serve(profile, Settings(), tell, folder.with_suffix(".log"))
    except WorkbenchError as error:
        print(json.dumps({"failed": folder.name, "message": str(error)}), flush=True)


async def main(folders: list[str]) -> None:
    await asyncio.gather(*(engine(Path(folder)) for folder in folders))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
