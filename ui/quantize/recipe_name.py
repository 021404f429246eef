"""Under which name a recipe is kept."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from ui import language
from ui.widgets import button, label
from workbench import named_files, recipes_kept
from workbench.errors import WorkbenchError
from workbench.recipe import PRESETS, Recipe


class RecipeName(QDialog):
    """Asks beside the window, keeps the recipe and closes; a name that cannot be one is told here.

    `kept(recipe)` is emitted with the recipe under its new name.
    """

    kept = Signal(object)

    def __init__(self, parent: QWidget):
        super().__init__(parent)
        self._recipe: Recipe | None = None
        language.bind(self.setWindowTitle, "Save the recipe")
        self.name = QLineEdit(maxLength=named_files.LONGEST)
        language.bind(self.name.setAccessibleName, "Name of the recipe")
        self.name.textChanged.connect(self._on_name)
        self.note = label(role="caption", wrap=True)
        self.save = button("Save", self._save, kind="primary")
        self.save.setDefault(True)
        row = QHBoxLayout()
        row.addWidget(self.note, 1)
        row.addWidget(button("Cancel", self.reject))
        row.addWidget(self.save)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(label("Name of the recipe", "caption"))
        column.addWidget(self.name)
        column.addLayout(row)
        self.resize(420, 120)

    def ask(self, recipe: Recipe) -> None:
        """Ask for the name of `recipe`; a preset's own is not proposed."""
        self._recipe = recipe
        self.name.setText("" if recipe.name in PRESETS else recipe.name)
        self._on_name()
        self.open()
        self.name.setFocus()
        self.name.selectAll()

    def _on_name(self) -> None:
        self.save.setEnabled(bool(self.name.text().strip()))
        if recipes_kept.exists(self.name.text()):
            language.bind(self.note.setText, "The recipe of this name is replaced.")
        else:
            language.release(self.note.setText)
            self.note.clear()

    def _save(self) -> None:
        assert self._recipe is not None
        try:
            kept = recipes_kept.keep(self._recipe, self.name.text(), overwrite=True)  # the note has said so
        except WorkbenchError as error:
            language.show(self.note.setText, f"{error} {error.hint}")
            return
        self.accept()
        self.kept.emit(kept)
