"""Where the window stood last time."""

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QMainWindow

from workbench import paths

FIRST = (1440, 900)


def restore(window: QMainWindow) -> dict[str, str]:
    """Stand there again, on a first run as large as the screen allows up to FIRST; returns what else was kept."""
    kept = _file()
    if not window.restoreGeometry(kept.value("geometry") or b""):
        screen = window.screen().availableGeometry()
        window.resize(min(FIRST[0], screen.width()), min(FIRST[1], screen.height()))
        window.move(screen.center() - window.rect().center())
    return {key: kept.value(key) for key in kept.allKeys() if key != "geometry"}


def remember(window: QMainWindow, **more: str) -> None:
    """Keep the window's place and `more` words for the next time."""
    kept = _file()
    kept.setValue("geometry", window.saveGeometry())
    for key, word in more.items():
        kept.setValue(key, word)
    kept.sync()


def _file() -> QSettings:
    return QSettings(str(paths.home() / "window.ini"), QSettings.Format.IniFormat)
