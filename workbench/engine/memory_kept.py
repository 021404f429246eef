"""What engines took of a device at earlier starts here, so that the next estimate is what the last start measured."""

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from workbench import json_file, named_files, paths
from workbench.catalog.devices import Device
from workbench.engine.profile import Profile, absolute
from workbench.engine.profiles_kept import to_dict
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError

MOST = 200  # files; the oldest go
MOST_BYTES = 2**50
# Of a profile, what changes neither weights nor overhead: how large the cache is made, and how requests are handled.
UNRELATED = (
    "name", "port", "memory_share", "kv_gib", "context", "block_size", "prefix_cache", "scheduling", "chat_template",
    "tool_parser", "ray_address",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of start: on which device, at `at` by time.time(), with which choices, and what it took."""

    device: str
    at: float
    choices: dict[str, Any]
    memory: EngineMemory


def recall(profile: Profile, interpreter: str, device: Device) -> EngineMemory | None:
    """What the last such start took; None when there was none."""
    kept = _read(_file(_shape(profile), interpreter, device.name))
    return kept and kept.memory


def remember(profile: Profile, interpreter: str, device: Device, memory: EngineMemory) -> None:
    """Keep the figures of a start; what this one did not tell stays as an earlier one told it."""
    shape = _shape(profile)
    path = _file(shape, interpreter, device.name)
    earlier = _read(path)
    told = {name: value for name, value in asdict(memory).items() if value is not None}
    merged = (asdict(earlier.memory) if earlier else {}) | told
    with suppress(WorkbenchError):  # a disk that takes it not is no reason to fail
        named_files.write({"device": device.name, "at": time.time(), "choices": shape, "memory": merged}, path)
        _thin(path.parent)


def of_model(folder: Path) -> list[Kept]:
    """All that is known of this model, the latest first."""
    model = str(folder.absolute())
    found = [kept for path in _folder().glob("*.json") if (kept := _read(path)) and kept.choices.get("model") == model]
    current = _weighed(folder)
    return sorted((kept for kept in found if kept.choices.get("weighed") == current), key=lambda kept: -kept.at)


def _folder() -> Path:
    return paths.home() / "memory"


def _file(shape: dict[str, Any], interpreter: str, device: str) -> Path:
    told = json.dumps([shape, interpreter, device], sort_keys=True)
    return _folder() / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"


def _shape(profile: Profile) -> dict[str, Any]:
    """The choices that what an engine takes depends on, and how much its weights are: a folder's may be replaced."""
    whole = absolute(profile)
    shape = {name: value for name, value in to_dict(whole).items() if name not in UNRELATED}
    draft = whole.speculation and whole.speculation.draft
    return shape | {"model": str(whole.model), "weighed": _weighed(whole.model), "draft": draft and _weighed(draft)}


def _weighed(folder: Path) -> int:
    """Bytes of the folder's tensors on disk."""
    try:
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    except OSError:
        return 0


def _read(path: Path) -> Kept | None:
    """What the file holds; a damaged one counts as none and is written anew."""
    try:
        stored = json_file.read(path)
        told = {name: stored["memory"].get(name) for name in (each.name for each in fields(EngineMemory))}
        if not all(value is None or _is_figure(value) for value in told.values()):
            return None
        return Kept(str(stored["device"]), float(stored["at"]), dict(stored["choices"]), EngineMemory(**told))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _is_figure(value: Any) -> bool:
    """Whether an engine can have told this: neither below nothing nor beyond what a machine can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_BYTES


def _thin(folder: Path) -> None:
    def age(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:  # another Lathe was faster
            return 0.0

    for path in sorted(folder.glob("*.json"), key=age)[:-MOST]:
        path.unlink(missing_ok=True)
