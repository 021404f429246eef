"""The application: one Qt loop for everything, from the first line to an exit without leftovers."""

import asyncio
import logging
import signal
import sys
import threading
from logging.handlers import RotatingFileHandler

import qasync
from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QMessageBox

from ui import language, theme
from ui.garbage import Garbage
from ui.main_window import MainWindow
from workbench import paths, settings
from workbench.words import say

STOPPING_S = 9.0  # the window promises to be gone within ten


def main() -> int:
    """Open the window and return the exit status when it was closed."""
    QGuiApplication.setApplicationName("Lathe")
    QGuiApplication.setDesktopFileName("lathe")
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)  # closing the last dialog would stop the loop under our tasks
    if not _has_place():
        return 1
    chosen = settings.load()
    language.choose(chosen.language)
    theme.apply(app, chosen.theme)
    Garbage(app)
    with asyncio.Runner(loop_factory=lambda: qasync.QEventLoop(app)) as runner:
        runner.run(_live(chosen))
    return 0


async def _live(chosen: settings.Settings) -> None:
    window = MainWindow(chosen)
    _route_errors(window)
    _obey_signals(window)
    window.show()
    window.begin()
    await window.closed.wait()
    try:
        async with asyncio.timeout(STOPPING_S):
            await window.tasks.stop_all()
    except TimeoutError:
        logging.getLogger(__name__).error("Some work did not end within %s s.", STOPPING_S)
    window.deleteLater()


def _has_place() -> bool:
    """Begin the log in the folder of Lathe's files. Where that fails a box says so: who reads a window's stderr?"""
    try:
        _log_to_file()
    except OSError as error:
        told = say("{path} cannot be used: {reason}.", path=str(error.filename), reason=str(error.strerror))
        QMessageBox.critical(None, "Lathe", f"{told}\n{say('Check the space and rights there.')}")
        return False
    return True


def _route_errors(window: MainWindow) -> None:
    """Whatever is raised outside our tasks is told like everything else."""

    def on_error(_kind, error, _trace) -> None:
        if isinstance(error, KeyboardInterrupt):
            window.leave()
        else:
            window.notices.tell(error)

    def on_loop_error(_loop, context: dict) -> None:
        window.notices.tell(context.get("exception") or RuntimeError(context["message"]))

    loop = asyncio.get_running_loop()
    sys.excepthook = on_error
    threading.excepthook = lambda args: loop.call_soon_threadsafe(window.notices.tell, args.exc_value)
    loop.set_exception_handler(on_loop_error)


def _obey_signals(window: MainWindow) -> None:
    """Ctrl+C and a request to terminate close the window without a question."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: window.leave())
    # Python runs a handler only when it has the word; Qt's loop gives it none while idle.
    awake = QTimer(window, interval=250)
    awake.timeout.connect(lambda: None)
    awake.start()


def _log_to_file() -> None:
    handler = RotatingFileHandler(paths.home() / "lathe.log", maxBytes=1_000_000, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("qasync").setLevel(logging.WARNING)
