"""How long the starts of each model with each profile took on this machine, so that the next one can be foretold."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from workbench import json_file, named_files, paths
from workbench.engine.profile import Profile, absolute
from workbench.engine.profiles_kept import to_dict
from workbench.errors import WorkbenchError

KEPT = 5  # starts; older ones may be of another driver or a cold disk


def expected(profile: Profile, interpreter: str) -> dict[str, float]:
    """By phase, the median of its seconds over the last starts; empty when there was none."""
    starts = _starts(_file(profile, interpreter))
    names = [name for start in starts for name in start]
    return {name: median([start[name] for start in starts if name in start]) for name in dict.fromkeys(names)}


def remember(profile: Profile, interpreter: str, seconds: Mapping[str, float]) -> None:
    """Keep the seconds of each phase of a start that succeeded. A disk that takes them not is no reason to fail."""
    path = _file(profile, interpreter)
    starts = [*_starts(path), {name: round(value, 3) for name, value in seconds.items()}][-KEPT:]
    with suppress(WorkbenchError):
        named_files.write({"model": str(profile.model.absolute()), "starts": starts}, path)


def _file(profile: Profile, interpreter: str) -> Path:
    """One file for all that a start's length depends on: not the port, nor a share of memory that is free just now."""
    alike = replace(absolute(profile), name="", port=0, memory_share=None)
    told = json.dumps([to_dict(alike), interpreter], sort_keys=True)
    return paths.home() / "starts" / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"


def _starts(path: Path) -> list[dict[str, float]]:
    """What the file holds; a damaged one counts as none and is written anew."""
    try:
        stored: Any = json_file.read(path)["starts"]
        return [{str(name): float(value) for name, value in start.items()} for start in stored]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
