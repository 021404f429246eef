"""What the user chose once for all runs, in one readable file."""

import json
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from workbench import json_file, paths
from workbench.errors import WorkbenchError
from workbench.option import is_possible, option


@dataclass(slots=True)
class Settings:
    """Every setting, declared once: the file and the form read the same fields."""

    language: str = option("", "Language", "", "en", "zh_CN")
    theme: str = option("system", "Theme", "system", "dark", "light")
    engine_python: str = option("", "Engine interpreter")
    model_folders: tuple[str, ...] = option((), "Model folders")
    recent: tuple[str, ...] = option((), "Recently opened folders")
    unload_idle: int = option(0, "Unload idle engines after")  # minutes; 0: never

    @property
    def interpreter(self) -> str:
        """The Python that holds torch and vLLM: the chosen one, else the window's own."""
        return self.engine_python or sys.executable

    @property
    def library(self) -> tuple[Path, ...]:
        """The folders whose subfolders are listed as models, our own first."""
        return (paths.inside_home("models"), *(Path(folder) for folder in self.model_folders))


def load() -> Settings:
    """The stored settings; defaults where none are. A damaged file is set aside, not lost."""
    path = paths.home() / "settings.json"
    try:
        stored = json_file.read(path)
        assert isinstance(stored, dict), type(stored)
    except FileNotFoundError:
        return Settings()
    except (ValueError, AssertionError):
        path.replace(path.with_suffix(".damaged"))
        return Settings()
    known = {}
    for each in fields(Settings):
        if each.name not in stored:
            continue
        value = stored[each.name]
        value = tuple(value) if isinstance(value, list) else value
        if type(value) is type(each.default) and is_possible(value, each.metadata["values"]):
            known[each.name] = value
    return Settings(**known)


def save(settings: Settings) -> None:
    """Write beside and rename, so that a crash leaves the old file or the new one."""
    path = paths.home() / "settings.json"
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        beside.write_text(json.dumps(asdict(settings), indent=1, ensure_ascii=False), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WorkbenchError(
            "The settings could not be saved: {reason}.",
            "Check the space and rights of {path}.",
            reason=error.strerror,
            path=str(path),
        ) from error
