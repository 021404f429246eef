"""Chooses one model folder: from the library, or any other."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QSizePolicy, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.eliding_combo import ElidingCombo
from workbench.words import say


class ModelPicker(QWidget):
    """`picked(Path | None)` says what the user chose; `show_folder` shows a choice without saying so."""

    picked = Signal(object)

    def __init__(self, template: str, none: str):
        super().__init__()
        self._none = none
        self._folders: list[Path | None] = [None]
        self.box = ElidingCombo()
        self.box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.box.addItem("")
        self.box.activated.connect(lambda index: self.picked.emit(self._folders[index]))
        language.bind(self.box.setAccessibleName, template)
        self.browse = button("Choose a folder", self._browse, icon="folder-open-line", only_icon=True)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(4)
        line.addWidget(self.box, 1)
        line.addWidget(self.browse)
        language.changed.connect(self._name_none)
        self._name_none()

    @property
    def folder(self) -> Path | None:
        return self._folders[self.box.currentIndex()]

    def show_library(self, folders: Sequence[Path]) -> None:
        """Offer these folders; what was chosen stays so, listed or not."""
        chosen = self.folder
        self._folders = [None, *folders]
        while self.box.count() > 1:
            self.box.removeItem(1)
        for folder in folders:
            self._add(folder)
        self.show_folder(chosen)

    def show_folder(self, folder: Path | None) -> None:
        if folder is not None and folder not in self._folders:
            self._folders.append(folder)
            self._add(folder)
        self.box.setCurrentIndex(self._folders.index(folder))
        self.box.setToolTip("" if folder is None else str(folder))

    def _add(self, folder: Path) -> None:
        self.box.addItem(folder.name)
        self.box.setItemData(self.box.count() - 1, str(folder), Qt.ItemDataRole.ToolTipRole)

    def _browse(self) -> None:
        # Not the static call: it would run a loop of its own inside ours.
        dialog = QFileDialog(self, say("Choose a folder"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(lambda path: (self.show_folder(Path(path)), self.picked.emit(Path(path))))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _name_none(self) -> None:
        self.box.setItemText(0, say(self._none))
