"""`python -m ui.pictures DEMO JOB`: the window's pages with a demo's data, as PNG files, without a screen.

The pages are the real ones: the job is replayed from its folder, the engines from the events that the demo kept.
"""

import asyncio
import sys
from pathlib import Path

import qasync
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from ui import language, theme
from ui.main_window import MainWindow
from workbench import jobs, settings
from workbench.chat.store import Store
from workbench.engine.profile import Profile, Speculation
from workbench.engine_events import EngineStopped
from workbench.events import Event, ReplyDone, decode
from workbench.quant_events import ModuleDone

SIZE = (1440, 900)
SETTLED_S = 0.6  # some frames: pages draw at most once in 40 ms


async def draw(window: MainWindow, demo: Path, job: Path) -> list[Path]:
    """Fill the pages, show each in turn, write its picture into `demo`; the paths in the order of the rail."""
    window.resize(*SIZE)
    window.show()
    window.begin()
    window.quantize_page.reopen(job)
    modules = [event for event in jobs.replay(job) if isinstance(event, ModuleDone) and event.output_error is not None]
    if modules:
        window.quantize_page.choose(max(modules, key=lambda event: event.output_error).name)
    original, quantized = (Path(jobs.spec_of(job)[key]) for key in ("model", "output"))
    # The quantized side shows the engine that drafted: it has every figure that the plain one has, and more.
    past = {
        "original": (Profile(original), kept(demo / "engine-original.jsonl")),
        "quantized": (Profile(quantized, speculation=Speculation("ngram")), kept(demo / "engine-drafting.jsonl")),
    }
    window.serve_page.open_pair(original, quantized)
    await asyncio.sleep(SETTLED_S)
    for side, (profile, events) in past.items():
        window.serve_page.forms[side].show_profile(profile)
        window.engines.show_past(side, profile, events)
        for event in events:
            if isinstance(event, ReplyDone):
                window.live_panel.add_reply(side, event)
    store = Store(demo / "chat.sqlite")
    window.chat_page.store = store
    window.chat_page.open_chat(store.listing()[0].id)
    drawn = []
    for key in window.pages:
        window.show_page(key)
        await asyncio.sleep(SETTLED_S)
        path = demo / f"{key}.png"
        if not window.grab().save(str(path)):
            raise OSError(f"{path} could not be written")
        drawn.append(path)
    await window.tasks.stop_all()
    store.close()
    return drawn


def kept(path: Path) -> list[Event]:
    """The events that the demo kept of one engine, without its end: the pages show it as it ran."""
    events = [decode(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [event for event in events if not isinstance(event, EngineStopped)]


def main(demo: Path, job: Path) -> int:
    """Draw all pages; one line of stdout for each picture."""
    QGuiApplication.setApplicationName("Lathe")
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)
    chosen = settings.load()
    language.choose(chosen.language)
    theme.apply(app, chosen.theme)

    async def work() -> None:
        for path in await draw(MainWindow(chosen), demo, job):
            print(path, flush=True)

    with asyncio.Runner(loop_factory=lambda: qasync.QEventLoop(app)) as runner:
        runner.run(work())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
