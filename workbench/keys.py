"""The keys of other people's servers: in the system's keyring, where it has one, and never in a file of ours."""

import os
from dataclasses import dataclass
from typing import Any

from workbench.errors import WorkbenchError
from workbench.words import Sentence

SERVICE = "Lathe"
SAFE = 1  # keyring's own mark; what is below keeps keys in plain files
NOT_KEPT = Sentence("This system has no keyring: the key is kept until Lathe ends, then asked for again.")

_this_run: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Saved:
    """Whether the key lies in the system's keyring; if not, `note` says for how long it is kept."""

    lasting: bool
    note: Sentence | None = None


def save(name: str, key: str) -> Saved:
    """Keep the key of that connection; an empty one forgets it. May wait for the user to open the keyring."""
    _this_run.pop(name, None)
    if not key:
        forget(name)
        return Saved(True)
    if (ring := _ring()) is not None:
        try:
            ring.set_password(SERVICE, name, key)
            return Saved(True)
        except Exception:  # locked, and the user would not open it; a ring that fails raises what its own library has
            pass
    _this_run[name] = key
    return Saved(False, NOT_KEPT)


def load(name: str) -> str:
    """The key of that connection; "" where none is kept."""
    if name in _this_run or (ring := _ring()) is None:
        return _this_run.get(name, "")
    try:
        return ring.get_password(SERVICE, name) or ""
    except Exception:  # as above
        return ""


def forget(name: str) -> None:
    """Keep no key of that connection any longer."""
    _this_run.pop(name, None)
    if (ring := _ring()) is None:
        return
    try:
        if ring.get_password(SERVICE, name) is not None:
            ring.delete_password(SERVICE, name)
    except Exception as error:  # as above
        raise WorkbenchError(
            "The key of {name} could not be removed from the keyring.", "Remove it with the system's own program.",
            name=name,
        ) from error  # fmt: skip


def from_environment(variable: str) -> str:
    """The key in that variable. Raises WorkbenchError where it is not set."""
    if key := os.environ.get(variable, "").strip():
        return key
    raise WorkbenchError("{name} is not set.", "Put the key into this variable first.", name=variable)


def _ring() -> Any | None:
    """The system's keyring; None where there is none that keeps a key from being read in a file."""
    try:
        import keyring
    except ImportError:
        return None
    ring = keyring.get_keyring()
    return ring if ring.priority >= SAFE else None
