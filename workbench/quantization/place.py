"""Where the result goes: is the name free, is there space, and what did a killed run leave there."""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from workbench import json_file
from workbench.errors import WorkbenchError


def partial(target: Path) -> Path:
    """The hidden sibling that this process writes to before the result gets its name."""
    return target.with_name(f"{_prefix(target)}{os.getpid()}")


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full disk, a file limit and missing rights into sentences."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = getattr(error, "errno", None)
        if code is None and (found := re.search(r"os error (\d+)", str(error))):
            code = int(found[1])
        free = shutil.disk_usage(_existing(target)).free
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise WorkbenchError(
                "The disk of {folder} is full: {free} bytes are free.", "Free some space or choose another disk.",
                folder=str(target.parent), free=free,
            ) from error  # fmt: skip
        if code == errno.EFBIG:
            raise WorkbenchError(
                "A file of the result is larger than {folder} allows; {free} bytes are free.",
                "Raise the limit on file sizes (ulimit -f) or choose another disk.",
                folder=str(target.parent), free=free,
            ) from error  # fmt: skip
        raise WorkbenchError(
            "The result cannot be written to {folder}: {reason}.", "Check the rights of that folder.",
            folder=str(target.parent), reason=os.strerror(code) if code else str(error).rstrip("."),
        ) from error  # fmt: skip


def check_name(target: Path, replace: bool) -> None:
    """Refuse a name that is taken, unless it is by an earlier result that is to be replaced."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        earlier = "quantization_config" in json_file.read(target / "config.json")
    except (OSError, ValueError):
        earlier = False
    if not earlier:
        raise WorkbenchError(
            "{path} is there already and holds no quantized model.", "Choose another folder for the result.",
            path=str(target),
        )  # fmt: skip
    if not replace:
        raise WorkbenchError(
            "{path} holds an earlier result.", "Choose another folder, or ask to replace it.", path=str(target)
        )


def check_space(target: Path, needed: int) -> None:
    """Refuse to start where the result will not fit, `needed` in bytes."""
    free = shutil.disk_usage(_existing(target)).free
    if free < needed:
        raise WorkbenchError(
            "The result needs {needed} bytes, but only {free} bytes are free in {folder}.",
            "Free some space or choose another disk.",
            needed=needed, free=free, folder=str(target.parent),
        )  # fmt: skip


def claim(target: Path) -> int:
    """Make `partial(target)`, held by the returned descriptor until that is closed, however this process ends.

    Raises WorkbenchError where another process holds its own for the same target.
    """
    folder = partial(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    parent = os.open(target.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network folders know no locks: there the last one wins
            fcntl.flock(parent, fcntl.LOCK_EX)  # two that begin at once take turns
        if any(map(_is_held, _partials(target))):
            raise WorkbenchError(
                "Another job is writing {path} just now.", "Let it end, or choose another folder.", path=str(target)
            )
        folder.mkdir()
        held = os.open(folder, os.O_RDONLY)
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return held
    finally:
        os.close(parent)


def _partials(target: Path) -> list[Path]:
    return [path for path in target.parent.iterdir() if path.name.startswith(_prefix(target))]


def _is_held(folder: Path) -> bool:
    """Whether a living process holds it: unlike its pid, a lock is never another's."""
    try:
        other = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(other)
    return False


def purge(target: Path) -> None:
    """Remove what runs that were killed left beside `target`. What an earlier result was set aside as comes back."""
    prefix = _prefix(target)
    if not target.parent.is_dir():
        return
    for left in _partials(target):
        pid, _, old = left.name.removeprefix(prefix).partition(".")
        # Our own number is of an earlier life, unless it is held.
        if not pid.isdigit() or _is_held(left) or (int(pid) != os.getpid() and _runs(int(pid))):
            continue
        if old and not target.exists():
            left.rename(target)
        else:
            shutil.rmtree(left, ignore_errors=True)


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _prefix(target: Path) -> str:
    return f".{target.name}.partial-"
