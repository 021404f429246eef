"""The recipes on offer: the presets, and the user's own as readable files in one folder."""

from dataclasses import dataclass, replace
from pathlib import Path

from workbench import named_files, paths
from workbench import recipe as recipes
from workbench.errors import WorkbenchError
from workbench.recipe import PRESETS, Recipe
from workbench.words import Sentence

# name → (short, with what it does)
TITLES = {
    "layered": (Sentence("Layered"), Sentence("Layered: AWQ attention, GPTQ MLP")),
    "best": (Sentence("Best quality"), Sentence("Best quality: refined GPTQ everywhere")),
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
    for path in named_files.listed(paths.home() / "recipes"):
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
    name = named_files.name_of(name)
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
    """A readable file that any Lathe reads."""
    named_files.write(recipes.to_dict(recipe), path)
