"""What is chosen once for all runs. Changes hold at once and are saved at once."""

import sys

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QVBoxLayout,
    QWidget,
)

from ui import language
from ui.tasks import Tasks
from ui.widgets.button import button
from ui.widgets.label import label, restyle
from ui.widgets.optional_number import OptionalNumber
from workbench import figures, paths
from workbench.engine import facts
from workbench.errors import WorkbenchError
from workbench.settings import Settings
from workbench.words import LANGUAGES, Sentence, say

THEMES = {"system": Sentence("As the system"), "dark": Sentence("Dark"), "light": Sentence("Light")}


class SettingsDialog(QDialog):
    """`changed` names the field of Settings that has a new value."""

    changed = Signal(str)

    def __init__(self, settings: Settings, tasks: Tasks, parent: QWidget):
        super().__init__(parent)
        self._settings, self._tasks = settings, tasks
        language.bind(self.setWindowTitle, "Settings")
        self.resize(640, 420)
        self.language = QComboBox()
        self.theme = QComboBox()
        self.interpreter = QLineEdit(settings.engine_python, placeholderText=sys.executable)
        self.interpreter.editingFinished.connect(self._on_interpreter)
        self.finding = label(role="caption", wrap=True)
        self.folders = QListWidget()
        self.folders.setMaximumHeight(120)
        self.unload = OptionalNumber(24 * 60, step=5, otherwise="never")
        self.unload.setMinimumWidth(96)
        self.unload.setValue(settings.unload_idle)
        self.unload.valueChanged.connect(lambda minutes: self._set("unload_idle", minutes))
        self._fill()
        self._lay_out()
        language.changed.connect(self._fill)
        self.language.activated.connect(lambda _index: self._set("language", self.language.currentData()))
        self.theme.activated.connect(lambda _index: self._set("theme", self.theme.currentData()))

    def open(self) -> None:
        super().open()
        self._tasks.start(self._check())

    def _lay_out(self) -> None:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(12)
        grid.setColumnStretch(1, 1)
        browse = button("Browse…", self._browse, icon="folder-open-line")
        add = button("Add folder…", self._add_folder, icon="folder-add-line")
        remove = button("Remove", self._remove_folder, kind="quiet")
        interpreter = _beside(self.interpreter, browse)
        edit = QVBoxLayout()
        edit.addWidget(add)
        edit.addWidget(remove)
        edit.addStretch(1)
        folders = _beside(self.folders, edit)
        unload = QHBoxLayout()
        unload.addWidget(self.unload)
        unload.addStretch(1)
        rows = (
            (_named(label("Language"), self.language), self.language),
            (_named(label("Theme"), self.theme), self.theme),
            (_named(label("Engine interpreter"), self.interpreter), interpreter),
            (label(), self.finding),
            (_named(label("Unload idle engines after"), self.unload), unload),
            (_named(label("Model folders"), self.folders), folders),
            (label("Lathe keeps its files in", "muted"), QLabel(str(paths.home()))),
        )
        for row, (name, field) in enumerate(rows):
            grid.addWidget(name, row, 0, Qt.AlignmentFlag.AlignTop if field is folders else Qt.AlignmentFlag(0))
            if isinstance(field, QWidget):
                grid.addWidget(field, row, 1)
            else:
                grid.addLayout(field, row, 1)
        foot = QHBoxLayout()
        foot.addStretch(1)
        done = button("Done", self.accept, kind="primary")
        done.setDefault(True)
        foot.addWidget(done)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(24, 24, 24, 16)
        whole.setSpacing(16)
        whole.addLayout(grid)
        whole.addStretch(1)
        whole.addLayout(foot)

    def _fill(self) -> None:
        """The choices in the language of now, the chosen ones in place."""
        languages = [("", say("As the system")), *LANGUAGES.items()]
        themes = [(code, str(name)) for code, name in THEMES.items()]
        for box, entries, chosen in (
            (self.language, languages, self._settings.language),
            (self.theme, themes, self._settings.theme),
        ):
            box.clear()
            for code, name in entries:
                box.addItem(name, code)
            box.setCurrentIndex(box.findData(chosen))
        self.unload.setSuffix(say(" min"))
        self.folders.clear()
        self.folders.addItems(self._settings.model_folders)

    def _set(self, name: str, value) -> None:
        if getattr(self._settings, name) != value:
            setattr(self._settings, name, value)
            self.changed.emit(name)

    def _on_interpreter(self) -> None:
        self._set("engine_python", self.interpreter.text().strip())
        self._tasks.start(self._check())

    def _browse(self) -> None:
        picker = QFileDialog(self, say("Engine interpreter"))
        picker.setFileMode(QFileDialog.FileMode.ExistingFile)
        picker.fileSelected.connect(self._on_browsed)
        picker.open()

    def _on_browsed(self, path: str) -> None:
        self.interpreter.setText(path)
        self._on_interpreter()

    def _add_folder(self) -> None:
        picker = QFileDialog(self, say("Model folders"))
        picker.setFileMode(QFileDialog.FileMode.Directory)
        picker.fileSelected.connect(self._on_folder)
        picker.open()

    def _on_folder(self, path: str) -> None:
        self._set("model_folders", tuple(dict.fromkeys((*self._settings.model_folders, path))))
        self._fill()

    def _remove_folder(self) -> None:
        gone = {item.text() for item in self.folders.selectedItems()}
        self._set("model_folders", tuple(path for path in self._settings.model_folders if path not in gone))
        self._fill()

    async def _check(self) -> None:
        """Say what the interpreter holds, in place; a wrong one is no error until it is used."""
        language.bind(self.finding.setText, "Looking…")
        try:
            found = await facts.ask(self._settings.interpreter)
        except WorkbenchError as error:
            self._found("rejected", Sentence(error.message, error.values))
            return
        values = {"vllm": found.version, "torch": found.torch or figures.DASH}
        self._found("", Sentence("vLLM {vllm} · torch {torch}", values))

    def _found(self, tone: str, sentence: Sentence) -> None:
        language.show(self.finding.setText, sentence)
        restyle(self.finding, "tone", tone)


def _named(text: QLabel, field: QWidget) -> QLabel:
    """The label names its field for screen readers."""
    text.setBuddy(field)
    language.show(field.setAccessibleName, text.text())
    return text


def _beside(first: QWidget, second) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(8)
    row.addWidget(first, 1)
    if isinstance(second, QWidget):
        row.addWidget(second)
    else:
        row.addLayout(second)
    return row
