"""Which files of a folder hold the weights, and whether all of them are there."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from workbench import json_file
from workbench.catalog import headers
from workbench.catalog.headers import Tensor
from workbench.catalog.problem import QUANTIZE, SERVE, Problem
from workbench.errors import WorkbenchError
from workbench.words import Sentence

INDEX = "model.safetensors.index.json"
ALL = (QUANTIZE, SERVE, "chat")
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class Missing:
    """A file that should be there; `tensors` is how many it held, None without an index."""

    file: str
    tensors: int | None


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything the headers tell about one folder."""

    tensors: tuple[Tensor, ...]
    missing: tuple[Missing, ...]
    problems: tuple[Problem, ...]


def read(folder: Path) -> Weights:
    """The tensors of a folder. Absent and damaged files become problems, not errors."""
    problems: list[Problem] = []
    names, missing, expected = _files(folder, problems)
    tensors: dict[str, Tensor] = {}
    twice: list[Tensor] = []
    for name in names:
        try:
            for tensor in headers.read(folder / name):
                if tensors.setdefault(tensor.name, tensor) is not tensor:
                    twice.append(tensor)
        except WorkbenchError as error:
            hint = Sentence(error.hint_template, error.values)
            problems.append(Problem("damaged_file", Sentence(error.message, error.values), hint, ALL))
    if missing:
        problems.append(_incomplete(missing))
    lost = [] if missing or problems else sorted(expected.keys() - tensors.keys())
    if lost:
        problems.append(
            Problem(
                "missing_tensors",
                Sentence(
                    "{count} {count:tensor that the index names is|tensors that the index names are} in no file, "
                    "such as {name}.",
                    {"count": len(lost), "name": lost[0]},
                ),
                Sentence("Download or copy the model again."),
                ALL,
            )
        )
    if twice:
        problems.append(_twice(twice, tensors))
    return Weights(tuple(tensors.values()), missing, tuple(problems))


def _twice(tensors: list[Tensor], first: dict[str, Tensor]) -> Problem:
    """Readers differ in which of the two they take."""
    name = tensors[0].name
    values = {"count": len(tensors), "name": name, "one": first[name].file, "other": tensors[0].file}
    return Problem(
        "stored_twice",
        Sentence(
            "{count} {count:tensor is|tensors are} stored twice, such as {name} in {one} and {other}: which counts "
            "is not known.",
            values,
        ),
        Sentence("Download or copy the model again."),
        (QUANTIZE,),
    )


def _incomplete(missing: tuple[Missing, ...]) -> Problem:
    files = ", ".join(gap.file for gap in missing[:3]) + (", …" if len(missing) > 3 else "")
    if all(gap.tensors is not None for gap in missing):
        count = sum(gap.tensors or 0 for gap in missing)
        values = {"files": files, "count": count}
        sentence = Sentence("The model is incomplete: missing {files} with {count} {count:tensor|tensors}.", values)
    else:
        sentence = Sentence("The model is incomplete: missing {files}.", {"files": files})
    return Problem("incomplete", sentence, Sentence("Download or copy the missing files into the folder."), ALL)


def _files(folder: Path, problems: list[Problem]) -> tuple[list[str], tuple[Missing, ...], dict[str, str]]:
    """The files to read, those that are absent, and the index (tensor name → file) where there is one."""
    if (folder / INDEX).is_file():
        index = _index(folder / INDEX)
        if index is None:
            problems.append(
                Problem(
                    "damaged_index",
                    Sentence("{file} cannot be understood.", {"file": INDEX}),
                    Sentence("Download or copy the file again."),
                    ALL,
                )
            )
        else:
            counts = Counter(index.values())
            gone = tuple(Missing(name, counts[name]) for name in sorted(counts) if not _is_there(folder / name))
            absent = {gap.file for gap in gone}
            return [name for name in sorted(counts) if name not in absent], gone, index
    present = sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())
    if "model.safetensors" in present:
        return ["model.safetensors"], (), {}
    # Mistral's own layout repeats every weight beside the usual files.
    present = [name for name in present if not name.startswith("consolidated")] or present
    return present, _gaps(present), {}


def _index(path: Path) -> dict[str, str] | None:
    try:
        found = json_file.read(path)["weight_map"]
        # A name with a folder in it could point out of the model's folder.
        sound = all(isinstance(name, str) and name == Path(name).name and name for name in found.values())
        json.dumps([*found, *found.values()], ensure_ascii=False).encode()  # half a letter is in no file's name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if sound and found else None


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long for a file
        return False


def _gaps(present: list[str]) -> tuple[Missing, ...]:
    """The numbers that a series such as model-00001-of-00003 lacks."""
    missing = []
    series = {(match[1], match[3]) for match in map(_SHARD.fullmatch, present) if match}
    for stem, total in series:
        for number in range(1, min(int(total), 10_000) + 1):
            name = f"{stem}-{number:0{len(total)}}-of-{total}.safetensors"
            if name not in present:
                missing.append(Missing(name, None))
    return tuple(missing)


def none(folder: Path) -> WorkbenchError:
    """Why there is nothing to read: pickled weights only, or no weights at all."""
    pickled = [path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern)]
    if pickled:
        return WorkbenchError(
            "{name} holds pickled weights only ({file}); opening a pickle can run a program, so Lathe does not.",
            "Choose the safetensors version of the model.", name=folder.name, file=pickled[0],
        )  # fmt: skip
    return WorkbenchError(
        "{name} holds no model.", "Choose a folder with config.json and .safetensors files.", name=folder.name
    )
