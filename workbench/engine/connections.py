"""Servers that somebody else runs, kept by name as readable files. Their keys are in `workbench.keys`."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from workbench import keys, named_files, paths
from workbench.errors import WorkbenchError


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's address above /v1, and which of its models is asked; "" is its first."""

    name: str
    url: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Stored:
    url: str
    model: str = ""


_STORED = TypeAdapter(_Stored)


def file_of(name: str) -> Path:
    """Where the connection of that name lies or would lie."""
    return paths.home() / "connections" / f"{name}.json"


def listing() -> tuple[Connection, ...]:
    """What is kept, by name; files that cannot be read are left out."""
    found = []
    for path in named_files.listed(paths.home() / "connections"):
        try:
            found.append(_read(path))
        except WorkbenchError:
            continue
    return tuple(found)


def find(name: str) -> Connection | None:
    """The connection of that name, if one is kept."""
    name = name.strip()
    if Path(name).name != name or not file_of(name).is_file():
        return None
    return _read(file_of(name))


def keep(connection: Connection) -> Connection:
    """Keep it under its name, in place of what has that name. Raises WorkbenchError on a name that cannot be one."""
    name = named_files.name_of(connection.name)
    named_files.write({"url": connection.url, "model": connection.model}, file_of(name))
    return Connection(name, connection.url, connection.model)


def remove(name: str) -> None:
    """Forget it together with its key."""
    if find(name) is None:
        raise WorkbenchError(
            "There is no connection called {name}.", "Yours are: {names}.",
            name=name, names=", ".join(each.name for each in listing()) or "–",
        )  # fmt: skip
    keys.forget(name.strip())
    file_of(name.strip()).unlink(missing_ok=True)


def _read(path: Path) -> Connection:
    try:
        stored = _STORED.validate_json(path.read_bytes(), extra="forbid")
    except (ValidationError, OSError) as error:
        raise WorkbenchError(
            "The connection {path} cannot be read.", "Remove the file and connect anew.", path=str(path)
        ) from error
    return Connection(path.stem, stored.url, stored.model)
