"""Where the calibration statistics of a model are kept on disk, so that they are gathered once.

A folder per model and calibration: one safetensors file per block, `outputs.safetensors` when all of it is there,
and the sensitivity scans made from all that. Nothing here reads a tensor.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from workbench import paths
from workbench.errors import WorkbenchError
from workbench.recipe import Recipe

SAMPLES = 32  # of the recipe's own: enough to judge by, gathered in a quarter of the time
LIMIT_BYTES = 20_000_000_000  # of all models together
OUTPUTS = "outputs.safetensors"
_FORM = 1  # of the files; another one must not be read by mistake


def folder_of(model: Path, recipe: Recipe) -> Path:
    """The folder for these weights and this calibration text, there or not. A changed weight file changes it."""
    digest = hashlib.sha256()
    for file in sorted((model / "config.json", *model.glob("*.safetensors"), *_tokenizer(model))):
        digest.update(f"{file.name} ".encode())
        _add(digest, file)
    if recipe.calibration_file:
        source = Path(recipe.calibration_file)
        for file in sorted(source.glob("*.txt")) if source.is_dir() else [source]:
            _add(digest, file)
    else:
        for file in sorted((paths.RESOURCES / "calibration").glob("*.txt")):
            digest.update(file.read_bytes())
    digest.update(json.dumps([_FORM, samples(recipe), recipe.length, recipe.seed]).encode())
    return _all() / digest.hexdigest()[:24]


def samples(recipe: Recipe) -> int:
    """How many calibration samples the statistics are of."""
    return min(recipe.samples, SAMPLES)


def block_file(folder: Path, block: int) -> Path:
    return folder / f"block-{block:05d}.safetensors"


def complete(folder: Path) -> bool:
    """Whether every block's statistics and the weights of the outputs are there."""
    return (folder / OUTPUTS).is_file()


def gathered(model: Path, recipe: Recipe) -> bool:
    """Whether a what-if and a sensitivity scan can begin without gathering anything."""
    return complete(folder_of(model, recipe))


def scan_file(folder: Path) -> Path:
    """Where the sensitivity scans made from these statistics are kept."""
    return folder / "sensitivity.json"


def make_room(keep: Path, needed: int) -> None:
    """Remove the statistics of other models, oldest first, until `needed` bytes fit under the limit."""
    others = sorted((place for place in _all().iterdir() if place.is_dir() and place != keep), key=_age)
    for place in others:
        if sum(map(size, others)) + needed <= LIMIT_BYTES and _free() >= needed:
            return
        shutil.rmtree(place, ignore_errors=True)
        others = [other for other in others if other.exists()]


def check_space(needed: int) -> None:
    """Refuse to begin where the statistics will not fit, `needed` in bytes."""
    if _free() < needed:
        raise WorkbenchError(
            "The calibration statistics need {needed} bytes, but only {free} bytes are free in {folder}.",
            "Free some space, or move the home folder with LATHE_HOME.",
            needed=needed, free=_free(), folder=str(_all()),
        )  # fmt: skip


def size(folder: Path) -> int:
    """Bytes that a folder's files take."""
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def spare() -> int:
    """Bytes that one model's statistics may take: the limit, or all but a tenth of what is free on the disk."""
    return min(LIMIT_BYTES, int(0.9 * _free()))


def _all() -> Path:
    return paths.inside_home("cache", "moments")


def _free() -> int:
    return shutil.disk_usage(_all()).free


def _age(folder: Path) -> float:
    return max((file.stat().st_mtime for file in folder.glob("*")), default=0.0)


def _tokenizer(model: Path) -> Iterable[Path]:
    return (model / name for name in ("tokenizer.json", "tokenizer.model") if (model / name).is_file())


def _add(digest: "hashlib._Hash", file: Path) -> None:
    try:
        stat = file.stat()
    except OSError as error:
        raise WorkbenchError(
            "{path} cannot be read: {reason}.", "Check that it is there and may be read.",
            path=str(file), reason=error.strerror,
        ) from error  # fmt: skip
    digest.update(f"{stat.st_size} {stat.st_mtime_ns};".encode())
