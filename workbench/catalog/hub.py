"""Models of the Hugging Face hub, fetched into a folder of our own."""

import fnmatch
import hashlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Stage

WANTED = ("*.safetensors", "*.json", "*.txt", "*.jinja")
_MB = 1_000_000
_PERIOD_S = 0.5


def download(repository: str, target: Path) -> Iterator[Event]:
    """Fetch a repository's safetensors and side files into `target`, resuming what an earlier try left there.

    Every large file is compared with the hub's checksum. Whatever the hub client raises passes through: no network,
    an offline setting, a missing repository.
    """
    from huggingface_hub import HfApi, snapshot_download

    # Asked with a short time limit: without a network this must not hold up the next source.
    found = HfApi().model_info(repository, files_metadata=True, timeout=5)
    files = [part for part in found.siblings or () if "/" not in part.rfilename and _wanted(part.rfilename)]
    total = sum(part.size or 0 for part in files)
    yield Stage("Downloading from the hub (MB)", total // _MB)
    raised: list[BaseException] = []

    def fetch() -> None:
        try:
            names = [part.rfilename for part in files]
            snapshot_download(repository, revision=found.sha, local_dir=target, allow_patterns=names)
        except BaseException as error:  # handed to the generator below, which raises it
            raised.append(error)

    worker = threading.Thread(target=fetch, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(_PERIOD_S)
        yield Advanced(min(_size(target), total) // _MB)
    if raised:
        raise raised[0]
    for part in files:
        if part.lfs and sha256(target / part.rfilename) != part.lfs.sha256:
            (target / part.rfilename).unlink()
            raise WorkbenchError(
                "{file} arrived damaged: its checksum is wrong.", "Download it again.", file=part.rfilename
            )
    shutil.rmtree(target / ".cache", ignore_errors=True)


def sha256(path: Path) -> str:
    """The checksum of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wanted(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in WANTED)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # renamed between the listing and the look
            continue
    return total
