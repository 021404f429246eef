"""Where Lathe keeps what it makes. LATHE_HOME moves all of it."""

import os
from importlib.resources import files
from pathlib import Path

import platformdirs

RESOURCES = Path(str(files("resources")))


def home() -> Path:
    """The folder of settings, models, jobs and chats; made when asked for."""
    folder = Path(os.environ.get("LATHE_HOME") or platformdirs.user_data_dir("lathe", appauthor=False))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def inside_home(*parts: str) -> Path:
    """A folder inside `home()`, made when asked for."""
    folder = home().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
