"""The user's own profiles, as readable files in one folder: of one engine, or of prefill and decode apart."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench import named_files, paths
from workbench.engine import separation
from workbench.engine.profile import Profile, absolute
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError

Chosen = Profile | Separation
_ONE, _APART = TypeAdapter(Profile), TypeAdapter(Separation)


@dataclass(frozen=True, slots=True)
class Kept:
    """One of the user's own; `chosen` is None where the file cannot be read, and `error` says why."""

    name: str
    path: Path
    chosen: Chosen | None
    error: WorkbenchError | None = None


def file_of(name: str) -> Path:
    """Where the profile of that name lies or would lie."""
    return paths.home() / "profiles" / f"{name}.json"


def listing() -> tuple[Kept, ...]:
    """The user's own profiles by name."""
    found = []
    for path in named_files.listed(paths.home() / "profiles"):
        try:
            found.append(Kept(path.stem, path, read(path)))
        except WorkbenchError as error:
            found.append(Kept(path.stem, path, None, error))
    return tuple(found)


def load(name: str) -> Chosen:
    """The user's own profile of that name, or the profile in a JSON file."""
    own = file_of(name.strip())
    if Path(name).name == name and own.is_file():
        return read(own)
    if not Path(name).is_file():
        raise WorkbenchError(
            "There is no profile called {name}.", "Yours are: {names}.",
            name=name, names=", ".join(kept.name for kept in listing()) or "–",
        )  # fmt: skip
    return read(Path(name))


def keep(chosen: Chosen, name: str, overwrite: bool = False) -> Path:
    """Keep `chosen` under `name`; its file. Raises WorkbenchError on a name that cannot be one, or is taken."""
    name = named_files.name_of(name)
    path = file_of(name)
    if path.exists() and not overwrite:
        raise WorkbenchError(
            "There is a profile called {name} already.", "Choose another name, or have it replaced.", name=name
        )
    named_files.write(to_dict(settled(chosen)), path)
    return path


def remove(name: str) -> None:
    """Forget one of the user's own profiles."""
    if not file_of(name.strip()).is_file():
        load(name.strip())  # says which there are, or
        raise WorkbenchError("{name} is none of your profiles.", "Remove the file itself.", name=name)
    file_of(name.strip()).unlink(missing_ok=True)


def settled(chosen: Chosen) -> Chosen:
    """What is kept of it: the same from whatever folder it is started, without the key of engines that others run."""
    return replace(separation.absolute(chosen), key="") if isinstance(chosen, Separation) else absolute(chosen)


def to_dict(chosen: Chosen) -> dict[str, Any]:
    """Plain values, as a profile file holds them."""
    return (_APART if isinstance(chosen, Separation) else _ONE).dump_python(chosen, mode="json")


def read(path: Path) -> Chosen:
    """The profile in a JSON file; what is left out has its default. Raises WorkbenchError on anything unknown."""
    try:
        stored = path.read_bytes()
        return (_APART if _is_apart(stored) else _ONE).validate_json(stored, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise WorkbenchError(
            "The profile {path} cannot be read: {place}: {reason}.", "Correct the file, or remove it.",
            path=str(path), place=".".join(map(str, first["loc"])) or "–", reason=first["msg"],
        ) from error  # fmt: skip
    except OSError as error:
        raise WorkbenchError(
            "The profile {path} cannot be read: {place}: {reason}.", "Correct the file, or remove it.",
            path=str(path), place="–", reason=error.strerror or str(error),
        ) from error  # fmt: skip


def _is_apart(stored: bytes) -> bool:
    try:
        return not {"prefill", "decode"}.isdisjoint(json.loads(stored))
    except (ValueError, TypeError):  # no JSON, or no object: what is wrong with it is said where it is validated
        return False
