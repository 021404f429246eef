"""The real window on a screen of its own, with the starter model, real jobs and real engines."""

import asyncio
import gc
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import qasync

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"
SCREEN = "1440x900x24"

gc.disable()  # as in the application (ui/garbage.py): a worker thread must not end what belongs to Qt's


def pytest_configure(config):
    """A virtual screen where there is none; without Xvfb the window is drawn offscreen."""
    os.environ["LATHE_LANGUAGE"] = "en"
    if os.environ.get("QT_QPA_PLATFORM") or os.environ.get("DISPLAY"):
        return
    if not shutil.which("Xvfb"):
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        return
    reading, writing = os.pipe()
    screen = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", SCREEN, "-nolisten", "tcp"],
        pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as answer:
        number = answer.readline().strip()  # to the line's end: Xvfb dies when its answer is not read whole
    os.environ["DISPLAY"] = f":{number}"
    config.add_cleanup(lambda: (screen.terminate(), screen.wait()))


def qt_loop():
    from PySide6.QtWidgets import QApplication

    return qasync.QEventLoop(QApplication.instance() or QApplication([]))


def pytest_asyncio_loop_factories(config, item):
    """Async tests in this folder run on the Qt loop, as the application does."""
    return {"qt": qt_loop}


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The starter model's folder, made once per machine."""
    from workbench.catalog import starter

    return starter.get(lambda event: None)


@pytest.fixture
def home(tmp_path, monkeypatch, starter_model) -> Path:
    """A home of its own whose library holds the starter model (hard links: nothing is copied)."""
    folder = tmp_path / "home"
    target = folder / "models" / starter_model.name
    shutil.copytree(starter_model, target, copy_function=_link)
    monkeypatch.setenv("LATHE_HOME", str(folder))
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture
def picture():
    """`picture(window, name)` keeps what the window shows."""
    ARTIFACTS.mkdir(exist_ok=True)

    def take(window, name: str) -> None:
        assert window.grab().save(str(ARTIFACTS / f"{name}.png"))

    return take


@pytest.fixture
def until():
    """Wait on the loop until `condition()` holds."""

    async def wait(condition, timeout_s: float, told=lambda: ""):
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not within {timeout_s} s. {told()}"
            await asyncio.sleep(0.05)

    return wait
