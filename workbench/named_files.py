"""What the user keeps by name: each a readable JSON file in a folder of its kind."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError

LONGEST = 60  # letters of a name


def name_of(text: str) -> str:
    """The name without space around it. Raises WorkbenchError on what cannot be a file's name on every system."""
    name = text.strip()
    if (
        not name
        or len(name) > LONGEST
        or name.startswith(".")
        or not name.isprintable()
        or set(name) & set('/\\:*?"<>|')
    ):
        raise WorkbenchError(
            "{name} cannot be a name here.", "Use up to {most} letters, digits, spaces, - and _.",
            name=f'"{name[:LONGEST]}"', most=LONGEST,
        )  # fmt: skip
    return name


def listed(folder: Path) -> list[Path]:
    """The files of all names, in the order of the names."""
    return sorted(folder.glob("*.json"), key=lambda path: path.name.lower())


def write(values: Any, path: Path) -> None:
    """Plain values as readable JSON."""
    write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(text.encode(), path)


def write_bytes(data: bytes, path: Path) -> None:
    """Written beside and renamed, so that the file is whole or not there. Raises WorkbenchError where it cannot be."""
    with _beside(path) as beside:
        beside.write_bytes(data)
        beside.replace(path)


def require(path: Path) -> None:
    """Raise now what `write_bytes` would raise of this place after the work whose result it shall hold."""
    with _beside(path) as beside:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        beside.touch()
        beside.unlink()


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A name beside `path`; nothing is left under it when the block fails, which is then a sentence."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        yield beside
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise WorkbenchError(
            "{path} could not be written: {reason}.", "Check the space and rights there.",
            path=str(path), reason=error.strerror or str(error),
        ) from error  # fmt: skip
