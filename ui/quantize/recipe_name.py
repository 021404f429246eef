"""Under which name a recipe is kept."""

from PySide6.QtWidgets import QWidget

from ui.widgets.keep_dialog import KeepDialog
from workbench import recipes_kept
from workbench.recipe import PRESETS, Recipe
from workbench.words import Sentence


class RecipeName(KeepDialog):
    """`kept(recipe)` is emitted with the recipe under its new name."""

    def __init__(self, parent: QWidget):
        super().__init__(
            parent,
            Sentence("Save the recipe"),
            Sentence("Name of the recipe"),
            Sentence("The recipe of this name is replaced."),
            recipes_kept.exists,
            lambda recipe, name: recipes_kept.keep(recipe, name, overwrite=True),  # the note has said so
        )

    def ask(self, recipe: Recipe) -> None:
        """Ask for the name of `recipe`; a preset's own is not proposed."""
        super().ask(recipe, "" if recipe.name in PRESETS else recipe.name)
