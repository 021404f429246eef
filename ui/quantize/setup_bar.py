"""What a run needs besides the recipe's choices: calibration text, measuring, and where the result goes."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QFileDialog, QFrame, QLineEdit, QSpinBox, QVBoxLayout

from ui import language
from ui.widgets import button, label
from ui.widgets.line import line
from ui.widgets.optional_number import MARGINS
from ui.widgets.reflow import Reflow
from workbench.recipe import Recipe

PLACE = 240  # pixels for the result's path


class SetupBar(QFrame):
    """Signals:
    recipe_changed(recipe): another calibration
    output_changed(path): another place for the result
    """

    recipe_changed = Signal(object)
    output_changed = Signal(object)

    def __init__(self):
        super().__init__()
        self.setObjectName("card")
        self._recipe: Recipe | None = None
        self.samples = self._spin("Calibration samples", 1, 4096)
        self.length = self._spin("Tokens in a sample", 8, 32768)
        self.text = button("Built-in text", self._choose_text, icon="file-text-line")
        language.bind(self.text.setToolTip, "Choose a text file of your own for the calibration")
        self.no_text = button("Use the built-in text", self._drop_text, kind="quiet", icon="close-line", only_icon=True)
        self.original = QCheckBox()
        self.original.clicked.connect(self._on_counts)
        language.bind(self.original.setText, "Fit to the original")
        language.bind(
            self.original.setToolTip,
            "Fit each layer to what the original model has there, so that it makes up for errors before it. "
            "A try of one layer shows nothing of it.",
        )
        self.measure = QCheckBox()
        self.measure.setChecked(True)
        language.bind(self.measure.setText, "Measure quality afterwards")
        language.bind(
            self.measure.setToolTip, "KL divergence and perplexity on held text, with plain rounding beside it"
        )
        self.output = QLineEdit()
        self.output.setMinimumWidth(PLACE)
        language.bind(self.output.setAccessibleName, "Folder of the result")
        self.output.editingFinished.connect(self._on_edited)
        folder = button("Choose the folder", self._choose_folder, icon="folder-open-line", only_icon=True)
        what = line(
            label("Calibration", "caption"), self.samples, label("×", "muted"), self.length,
            label("tokens of", "muted"), self.text, self.no_text, self.original, self.measure, None,
        )  # fmt: skip
        where = line(label("Result", "caption"), self.output, folder)
        where.layout().setStretch(1, 1)
        both = Reflow(2, 1, across=16, stretch=(0, 1))
        both.add(what, where)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(16, 8, 12, 8)
        whole.addWidget(both)

    def show_setup(self, recipe: Recipe, output: Path) -> None:
        self._recipe = recipe
        for spin, value in ((self.samples, recipe.samples), (self.length, recipe.length)):
            spin.blockSignals(True)
            spin.setValue(value)
            spin.blockSignals(False)
        self.original.setChecked(recipe.targets == "original")
        if recipe.calibration_file:
            language.show(self.text.setText, Path(recipe.calibration_file).name)
        else:
            language.bind(self.text.setText, "Built-in text")
        self.no_text.setVisible(bool(recipe.calibration_file))
        if self.output.text() != str(output):
            self.output.setText(str(output))
            self.output.setCursorPosition(len(str(output)))
        self.output.setToolTip(str(output))

    def _spin(self, title: str, least: int, most: int) -> QSpinBox:
        spin = QSpinBox()
        spin.setRange(least, most)
        spin.setKeyboardTracking(False)
        spin.setMinimumWidth(72)
        spin.lineEdit().setTextMargins(*MARGINS)
        language.bind(spin.setAccessibleName, title)
        spin.valueChanged.connect(self._on_counts)
        return spin

    def _on_counts(self) -> None:
        if self._recipe:
            aim = "original" if self.original.isChecked() else "own"
            counts = {"samples": self.samples.value(), "length": self.length.value()}
            self.recipe_changed.emit(replace(self._recipe, targets=aim, **counts))

    def _on_edited(self) -> None:
        if text := self.output.text().strip():
            self.output_changed.emit(Path(text).expanduser())

    def _choose_text(self) -> None:
        dialog = QFileDialog(self)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self._on_text)
        dialog.open()

    def _on_text(self, path: str) -> None:
        if self._recipe:
            self.recipe_changed.emit(replace(self._recipe, calibration_file=path))

    def _drop_text(self) -> None:
        if self._recipe:
            self.recipe_changed.emit(replace(self._recipe, calibration_file=None))

    def _choose_folder(self) -> None:
        dialog = QFileDialog(self, directory=str(Path(self.output.text()).parent))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(
            lambda parent: self.output_changed.emit(Path(parent) / Path(self.output.text()).name)
        )
        dialog.open()
