"""Pages and the window on the Qt loop, offscreen, in a home of their own."""

import asyncio
import gc
import os
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["LATHE_LANGUAGE"] = "en"

import pytest
import qasync
from PySide6.QtWidgets import QApplication

from ui import language, theme
from ui.engines import Engines
from ui.notices import Notices
from ui.tasks import Tasks
from workbench import jobs
from workbench.settings import Settings

gc.disable()  # as in the application (ui/garbage.py): a worker thread must not end what belongs to Qt's


def qt_loop():
    return qasync.QEventLoop(QApplication.instance() or QApplication([]))


def pytest_asyncio_loop_factories(config, item):
    """Async tests in this folder run on the Qt loop, as the application does."""
    return {"qt": qt_loop}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Every test has a LATHE_HOME of its own."""
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def dressed(qapp):
    """The theme is on and the language is English before and after each test."""
    qapp.setQuitOnLastWindowClosed(False)
    if not qapp.property("dressed"):
        theme.apply(qapp, "dark")
    language.choose("en")
    yield
    language.choose("en")
    gc.collect()


@pytest.fixture
def settings():
    return Settings(language="en", theme="dark")


@pytest.fixture
def notices(qapp):
    return Notices()


@pytest.fixture
def told(notices):
    """What the user was told, in order."""
    return notices.told


@pytest.fixture
async def tasks(notices):
    """The owner of coroutines; all of them are ended after the test."""
    owner = Tasks(notices.tell)
    yield owner
    await owner.stop_all()


@pytest.fixture
def engines(settings, tasks):
    """The window's engines; none is started."""
    return Engines(settings, tasks)


@pytest.fixture
def until():
    """Wait on the loop until `condition()` holds; qtbot.waitUntil would re-enter tasks."""

    async def wait(condition, timeout_s=5.0):
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not within {timeout_s} s: {condition}"
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Replace the job process: `job(e1, e2)` plays events, `job(emit -> coroutine)` does as it likes.

    Returns the list of (kind, spec) that were created.
    """
    created = []

    def install(*story):
        async def run(folder, on_event, settings, ask=None):
            if len(story) == 1 and callable(story[0]):
                await story[0](on_event)
                return
            for event in story:
                on_event(event)
                await asyncio.sleep(0)

        def create(kind, spec):
            created.append((kind, spec))
            folder = tmp_path / f"job-{len(created)}"
            folder.mkdir(exist_ok=True)
            return folder

        monkeypatch.setattr(jobs, "run", run)
        monkeypatch.setattr(jobs, "create", create)
        return created

    return install
