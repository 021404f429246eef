"""Which recipe: the presets, the user's own, and what was made of either; a menu keeps, brings and writes them."""

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QMessageBox, QWidget

from ui import language
from ui.quantize.recipe_details import RecipeDetails
from ui.quantize.recipe_name import RecipeName
from ui.widgets.eliding_combo import ElidingCombo
from ui.widgets.menu_button import MenuButton
from workbench import recipe as recipes
from workbench import recipes_kept
from workbench.errors import WorkbenchError
from workbench.plan import Plan
from workbench.recipe import PRESETS, Recipe
from workbench.recipes_kept import TITLES, Kept
from workbench.words import Sentence, say

FILES = Sentence("Recipes (*.json)")


class RecipeBox(QWidget):
    """Signals:
    picked(recipe): the user took a preset or one of their own
    failed(error): a file could not be read or written
    """

    picked = Signal(object)
    failed = Signal(object)

    def __init__(self):
        super().__init__()
        self._shown: Recipe | None = None
        self._plan: Plan | None = None
        self.choice = ElidingCombo()
        language.bind(self.choice.setAccessibleName, "Recipe")
        self.choice.setMinimumContentsLength(26)
        self.choice.setMaxVisibleItems(24)
        self.choice.activated.connect(self._on_activated)
        self.more = MenuButton(Sentence("Save, import or export the recipe"), "more-2-fill", self.fill_menu)
        self.menu = self.more.lines
        self.naming = RecipeName(self)
        self.naming.kept.connect(self._on_kept)
        self.details = RecipeDetails(self)
        self.details.changed.connect(self.picked)
        self.question: QMessageBox | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(self.choice)
        row.addWidget(self.more)
        language.changed.connect(self._fill)
        self._fill()

    def show_recipe(self, recipe: Recipe) -> None:
        """Show `recipe`, as a preset or one of the user's own where it is one."""
        if recipe != self._shown:
            self._shown = recipe
            self._fill()

    def show_plan(self, plan: Plan | None) -> None:
        """Let the details say what the rules match; without a plan there are none."""
        self._plan = plan
        if plan is None:
            self.details.close()
        else:
            self.details.show_plan(plan)

    def showEvent(self, event) -> None:
        self._fill()  # files may have come or gone meanwhile
        super().showEvent(event)

    @property
    def own(self) -> bool:
        """Whether what is shown bears the name of one of the user's own recipes."""
        return bool(self._shown and self._shown.name not in PRESETS and recipes_kept.exists(self._shown.name))

    def fill_menu(self) -> None:
        """The actions on the recipe that is shown."""
        self.menu.clear()
        self.menu.addAction(say("Exceptions…"), self.details.show).setEnabled(self._plan is not None)
        self.menu.addSeparator()
        self.menu.addAction(say("Save as…"), self.save_as).setEnabled(self._shown is not None)
        self.menu.addAction(say("Import…"), self.choose_import)
        self.menu.addAction(say("Export…"), self.choose_export).setEnabled(self._shown is not None)
        if self.own:
            self.menu.addSeparator()
            self.menu.addAction(say("Remove {name}…", name=self._shown.name), self.ask_removal)

    def save_as(self) -> None:
        """Keep what is shown under a name."""
        if self._shown:
            self.naming.ask(self._shown)

    def choose_import(self) -> None:
        self._dialog(Sentence("Import a recipe"), QFileDialog.FileMode.ExistingFile).fileSelected.connect(self.bring)

    def choose_export(self) -> None:
        dialog = self._dialog(Sentence("Export the recipe"), QFileDialog.FileMode.AnyFile)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("json")
        dialog.selectFile(f"{self._shown.name or 'recipe'}.json")
        dialog.fileSelected.connect(self.write)

    def bring(self, path: str) -> None:
        """Take a recipe from a file; where its name is taken, ask for another."""
        try:
            recipe = recipes.read(Path(path))
            if recipe.name in PRESETS or recipes_kept.exists(recipe.name):
                self.naming.ask(recipe)
                return
            self._on_kept(recipes_kept.keep(recipe, recipe.name))
        except WorkbenchError as error:
            self.failed.emit(error)

    def write(self, path: str) -> None:
        """Write what is shown to a file."""
        try:
            recipes_kept.write(self._shown, Path(path))
        except WorkbenchError as error:
            self.failed.emit(error)

    def ask_removal(self) -> None:
        name = self._shown.name
        box = QMessageBox(self)
        box.setIcon(QMessageBox.Icon.Question)
        box.setText(say("Remove the recipe {name}?", name=name))
        box.addButton(say("Cancel"), QMessageBox.ButtonRole.RejectRole)
        box.addButton(say("Remove"), QMessageBox.ButtonRole.DestructiveRole).clicked.connect(lambda: self._remove(name))
        self.question = box
        box.open()

    def _on_kept(self, recipe: Recipe) -> None:
        self._shown = recipe
        self._fill()
        self.picked.emit(recipe)

    def _remove(self, name: str) -> None:
        try:
            recipes_kept.remove(name)
        except WorkbenchError as error:
            self.failed.emit(error)
        self._fill()

    def _dialog(self, title: Sentence, mode: QFileDialog.FileMode) -> QFileDialog:
        dialog = QFileDialog(self, str(title), filter=str(FILES))
        dialog.setFileMode(mode)
        dialog.open()
        return dialog

    def _fill(self) -> None:
        self.choice.clear()
        for name, preset in PRESETS.items():
            self.choice.addItem(str(TITLES[name][1]), preset)
        own = recipes_kept.listing()
        if own:
            self.choice.insertSeparator(self.choice.count())
        for kept in own:
            if kept.recipe:
                self.choice.addItem(kept.name, kept.recipe)
            else:
                self._add_unreadable(kept)
        if self._shown is None:
            return
        for index in range(self.choice.count()):
            if self.choice.itemData(index) == self._shown:
                self.choice.setCurrentIndex(index)
                return
        name = self._shown.name
        if name in TITLES:
            words = say("{name}, changed", name=str(TITLES[name][0]))
        elif self.own:
            words = say("{name}, changed", name=name)
        else:
            words = say("{name}, not saved", name=name) if name else say("Custom")
        self.choice.addItem(words, self._shown)
        self.choice.setCurrentIndex(self.choice.count() - 1)

    def _add_unreadable(self, kept: Kept) -> None:
        """A file that an editor broke is listed with what is wrong, and cannot be picked."""
        self.choice.addItem(say("{name}: cannot be read", name=kept.name))
        row = self.choice.count() - 1
        told = f"{kept.error} {kept.error.hint}\n{kept.path}"
        self.choice.setItemData(row, told, Qt.ItemDataRole.ToolTipRole)
        self.choice.setItemData(row, told, Qt.ItemDataRole.AccessibleDescriptionRole)
        self.choice.model().item(row).setEnabled(False)

    def _on_activated(self, index: int) -> None:
        recipe = self.choice.itemData(index)
        if recipe is not None and recipe != self._shown:
            self.picked.emit(recipe)
