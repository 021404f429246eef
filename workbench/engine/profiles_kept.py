"""The user's own profiles, as readable files in one folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench import named_files, paths
from workbench.engine.profile import Profile, absolute
from workbench.errors import WorkbenchError

_STORED = TypeAdapter(Profile)


@dataclass(frozen=True, slots=True)
class Kept:
    """One of the user's own; `profile` is None where the file cannot be read, and `error` says why."""

    name: str
    path: Path
    profile: Profile | None
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


def load(name: str) -> Profile:
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


def keep(profile: Profile, name: str, overwrite: bool = False) -> Path:
    """Keep `profile` under `name`; its file. Raises WorkbenchError on a name that cannot be one, or is taken."""
    name = named_files.name_of(name)
    path = file_of(name)
    if path.exists() and not overwrite:
        raise WorkbenchError(
            "There is a profile called {name} already.", "Choose another name, or have it replaced.", name=name
        )
    named_files.write(to_dict(absolute(profile)), path)
    return path


def remove(name: str) -> None:
    """Forget one of the user's own profiles."""
    if not file_of(name.strip()).is_file():
        load(name.strip())  # says which there are, or
        raise WorkbenchError("{name} is none of your profiles.", "Remove the file itself.", name=name)
    file_of(name.strip()).unlink(missing_ok=True)


def to_dict(profile: Profile) -> dict[str, Any]:
    """Plain values, as a profile file holds them."""
    return _STORED.dump_python(profile, mode="json")


def read(path: Path) -> Profile:
    """The profile in a JSON file; what is left out has its default. Raises WorkbenchError on anything unknown."""
    try:
        return _STORED.validate_json(path.read_bytes(), extra="forbid")
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
