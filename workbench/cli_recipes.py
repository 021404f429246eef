"""`lathe recipes`: the presets and the user's own, and files going in and out."""

from pathlib import Path
from typing import Annotated

import typer

from workbench import recipe as recipes
from workbench import recipes_kept, terminal
from workbench.recipe import PRESETS, Recipe
from workbench.words import say


def register(app: typer.Typer) -> None:
    app.command(name="recipes")(recipes_command)


def recipes_command(
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Keep the recipe in a file.")] = None,
    name: Annotated[str, typer.Option("--name", help="Keep it under this name.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Also where the name is taken.")] = False,
    export: Annotated[
        tuple[str, Path] | None, typer.Option("--export", metavar="NAME FILE", help="Write a recipe to a file.")
    ] = None,
    remove: Annotated[str, typer.Option("--remove", metavar="NAME", help="Forget a recipe of yours.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")] = False,
) -> None:
    """List the presets and your own recipes, keep one from a file, or write one to a file."""
    if save:
        kept = recipes_kept.bring(save, name, replace)
        terminal.out.print(say("Kept as {name}: {path}", name=kept.name, path=str(recipes.kept_file(kept.name))))
    if export:
        recipes_kept.write(recipes.load(export[0]), export[1])
        terminal.out.print(say("Written to {path}.", path=str(export[1])))
    if remove:
        recipes_kept.remove(remove)
        terminal.out.print(say("{name} is removed.", name=remove))
    if not (save or export or remove):
        _list(as_json)


def _list(as_json: bool) -> None:
    own = recipes_kept.listing()
    if as_json:
        found = [("preset", recipe) for recipe in PRESETS.values()]
        found += [("own", kept.recipe) for kept in own if kept.recipe]
        terminal.print_json([{"kind": kind} | recipes.to_dict(recipe) for kind, recipe in found])
        return
    rows = [(name, str(recipes_kept.TITLES[name][1]), *_parts(recipe)) for name, recipe in PRESETS.items()]
    rows += [(kept.name, say("yours"), *_parts(kept.recipe)) for kept in own if kept.recipe]
    terminal.table((say("Name"), say("Recipe"), say("Attention"), say("MLP"), say("Exceptions")), rows)
    for kept in own:
        if kept.error:
            terminal.err.print(f"{kept.path}:", markup=False)
            terminal.print_error(kept.error)


def _parts(recipe: Recipe) -> tuple[str, str, int]:
    attention, mlp = (
        choice.method if choice.kept else f"{choice.method} {choice.bits}" for choice in (recipe.attention, recipe.mlp)
    )
    return attention, mlp, len(recipe.rules)
