"""The recipes on offer: the presets, and the user's own as readable files in one folder."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from workbench import paths
from workbench import recipe as recipes
from workbench.errors import WorkbenchError
from workbench.recipe import PRESETS, Recipe
from workbench.words import Sentence

LONGEST = 60  # letters of a name
# name → (short, with what it does)
TITLES = {
    "layered": (Sentence("Layered"), Sentence("Layered: AWQ attention, GPTQ MLP")),
    "best": (Sentence("Best quality"), Sentence("Best quality: AWQ + GPTQ everywhere")),
    "rtn": (Sentence("Fast"), Sentence("Fast: plain rounding (RTN)")),
    "awq": (Sentence("AWQ everywhere"), Sentence("AWQ everywhere")),
    "gptq": (Sentence("GPTQ everywhere"), Sentence("GPTQ everywhere")),
    "int8": (Sentence("INT8"), Sentence("INT8: 8 bit, symmetric")),
    "glm": (Sentence("GLM-style"), Sentence("GLM-style: MLP kept, group 64, symmetric")),
}


@dataclass(frozen=True, slots=True)
class Kept:
    """One of the user's own; `recipe` is None where the file cannot be read, and `error` says why."""

    name: str
    path: Path
    recipe: Recipe | None
    error: WorkbenchError | None = None


def listing() -> tuple[Kept, ...]:
    """The user's own recipes by name."""
    found = []
    for path in sorted((paths.home() / "recipes").glob("*.json"), key=lambda path: path.name.lower()):
        try:
            found.append(Kept(path.stem, path, replace(recipes.read(path), name=path.stem)))
        except WorkbenchError as error:
            found.append(Kept(path.stem, path, None, error))
    return tuple(found)


def named(name: str) -> Recipe | None:
    """The preset or the user's own recipe of that name as it was kept; None where there is none to read."""
    if name in PRESETS:
        return PRESETS[name]
    return next((kept.recipe for kept in listing() if kept.name == name), None)


def exists(name: str) -> bool:
    return recipes.kept_file(name.strip()).is_file()


def keep(recipe: Recipe, name: str, overwrite: bool = False) -> Recipe:
    """Keep `recipe` under `name` and return it as kept. Raises WorkbenchError on a name that cannot be one."""
    name = name.strip()
    if (
        not name
        or len(name) > LONGEST
        or name.startswith(".")
        or not name.isprintable()
        or set(name) & set('/\\:*?"<>|')
    ):
        raise WorkbenchError(
            "A recipe cannot be called {name}.", "Use up to {most} letters, digits, spaces, - and _.",
            name=f'"{name[:LONGEST]}"', most=LONGEST,
        )  # fmt: skip
    if name in PRESETS:
        raise WorkbenchError("{name} is the name of a preset.", "Choose another name.", name=name)
    path = recipes.kept_file(name)
    if path.exists() and not overwrite:
        raise WorkbenchError(
            "There is a recipe called {name} already.", "Choose another name, or have it replaced.", name=name
        )
    kept = replace(recipe, name=name)
    write(kept, path)
    return kept


def bring(path: Path, name: str = "", overwrite: bool = False) -> Recipe:
    """Keep the recipe in a file from elsewhere, under its own name unless another is given."""
    recipe = recipes.read(path)
    return keep(recipe, name or (recipe.name if recipe.name not in PRESETS else path.stem), overwrite)


def remove(name: str) -> None:
    """Forget one of the user's own recipes."""
    if not exists(name):
        own = ", ".join(kept.name for kept in listing())
        raise WorkbenchError(
            "There is no recipe of yours called {name}.", "Yours are: {names}.", name=name, names=own or "–"
        )
    recipes.kept_file(name.strip()).unlink(missing_ok=True)


def write(recipe: Recipe, path: Path) -> None:
    """A readable file that any Lathe reads; written beside and renamed, so that it is whole or not there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(recipes.to_dict(recipe), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise WorkbenchError(
            "The recipe could not be written to {path}: {reason}.", "Check the space and rights there.",
            path=str(path), reason=error.strerror or str(error),
        ) from error  # fmt: skip
