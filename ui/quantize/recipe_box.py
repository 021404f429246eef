"""Which recipe: the presets, and the user's own once a choice was changed."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox

from ui import language
from workbench.recipe import PRESETS, Recipe
from workbench.words import Sentence, say

# name → (short, with what it does)
NAMES = {
    "layered": (Sentence("Layered"), Sentence("Layered: AWQ attention, GPTQ MLP")),
    "best": (Sentence("Best"), Sentence("Best: AWQ + GPTQ everywhere")),
    "rtn": (Sentence("Plain rounding"), Sentence("Plain rounding (RTN)")),
}


class RecipeBox(QComboBox):
    """`picked(recipe)` when the user takes a preset."""

    picked = Signal(object)

    def __init__(self):
        super().__init__()
        self._shown: Recipe | None = None
        language.bind(self.setAccessibleName, "Recipe")
        language.changed.connect(self._fill)
        self.activated.connect(self._on_activated)
        self.setMinimumContentsLength(26)
        self._fill()

    def show_recipe(self, recipe: Recipe) -> None:
        """Show `recipe`, as a preset where it is one."""
        if recipe != self._shown:
            self._shown = recipe
            self._fill()

    def _fill(self) -> None:
        self.clear()
        for name, preset in PRESETS.items():
            self.addItem(str(NAMES[name][1]) if name in NAMES else name, preset)
        if self._shown is None:
            return
        for index in range(self.count()):
            if self.itemData(index) == self._shown:
                self.setCurrentIndex(index)
                return
        name = self._shown.name
        short = str(NAMES[name][0]) if name in NAMES else name
        self.addItem(say("{name}, changed", name=short) if short else say("Custom"), self._shown)
        self.setCurrentIndex(self.count() - 1)

    def _on_activated(self, index: int) -> None:
        recipe = self.itemData(index)
        if recipe != self._shown:
            self.picked.emit(recipe)
