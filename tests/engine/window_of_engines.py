"""Child of test_engine_tree: a stand-in for the window, which serves the given folders at once and tells by lines.

`{"ready": folder, "pid": server, "notes": […]}` when an engine answers; `{"failed": folder, "message": …, …}` when
it ended by itself and nothing of it is left; its `at_s` is when that was told. Folders in lines of stdin are
served once more.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from workbench.engine import serve
from workbench.engine.profile import Profile, Speculation
from workbench.engine_events import EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed, Note
from workbench.settings import Settings


async def engine(folder: Path) -> None:
    notes, failed_s = [], []

    def tell(event: Event) -> None:
        if isinstance(event, Failed):
            failed_s.append(time.monotonic())
        if isinstance(event, Note):
            notes.append(event.message)
        if isinstance(event, EngineReady):
            told = {"ready": folder.name, "pid": event.pid, "url": event.url, "key": event.key, "notes": notes}
            print(json.dumps(told), flush=True)

    profile = Profile(folder, kv_gib=0.25, speculation=Speculation())
    try:
        await serve.serve(profile, Settings(), tell, folder.with_suffix(".log"))
    except WorkbenchError as error:
        print(json.dumps({"failed": folder.name, "message": str(error), "at_s": failed_s[0]}), flush=True)


async def main(folders: list[str]) -> None:
    engines = [asyncio.create_task(engine(Path(folder))) for folder in folders]

    def again() -> None:
        lines = os.read(sys.stdin.fileno(), 4096).decode().splitlines()
        engines.extend(asyncio.create_task(engine(Path(line))) for line in lines)

    asyncio.get_running_loop().add_reader(sys.stdin, again)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
