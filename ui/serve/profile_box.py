"""Which kept profile a slot has; a menu keeps one, takes a pasted command, and writes other forms of the command."""

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QMessageBox, QWidget

from ui import language
from ui.serve.paste_dialog import PasteDialog
from ui.widgets.keep_dialog import KeepDialog
from ui.widgets.label import label
from ui.widgets.menu_button import MenuButton
from workbench import named_files
from workbench.engine import command, exports, profiles_kept
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile, absolute
from workbench.engine.profiles_kept import Chosen
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError
from workbench.words import Sentence, say

PORT = 8000
ENDINGS = {"systemd": "service", "compose": "yaml"}


class ProfileBox(QWidget):
    """Signals:
    picked(chosen): the user took a kept profile, or what a pasted command means
    failed(error): a file could not be read or written
    """

    picked = Signal(object)
    failed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._shown: Chosen | None = None
        self._running = False
        self._facts: EngineFacts | None = None
        self.choice = QComboBox()
        language.bind(self.choice.setAccessibleName, "Profile")
        self.choice.activated.connect(self._on_activated)
        self.more = MenuButton(Sentence("Save, take or export a profile"), "more-2-fill", self.fill_menu)
        self.menu = self.more.lines
        self.naming = KeepDialog(
            self,
            Sentence("Save the profile"),
            Sentence("Name of the profile"),
            Sentence("The profile of this name is replaced."),
            lambda name: profiles_kept.file_of(name).is_file(),
            lambda chosen, name: profiles_kept.keep(chosen, name, overwrite=True),  # the note has said so
        )
        self.naming.kept.connect(lambda _path: self._fill())
        self.pasting = PasteDialog(self)
        self.pasting.taken.connect(self.picked)
        self.question: QMessageBox | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(label("Profile", "muted"))
        row.addWidget(self.choice, 1)
        row.addWidget(self.more)
        language.changed.connect(self._fill)
        self._fill()

    def show_chosen(self, chosen: Chosen | None, running: bool) -> None:
        """What the slot has now: a kept profile where it is one to the letter. What runs can be kept, not exchanged."""
        if (chosen, running) != (self._shown, self._running):
            self._shown, self._running = chosen, running
            self._select()

    def show_facts(self, facts: EngineFacts) -> None:
        self._facts = facts

    def showEvent(self, event) -> None:
        self._fill()  # files may have come or gone meanwhile
        super().showEvent(event)

    @property
    def name(self) -> str:
        """The name of the kept profile that is shown; empty for none."""
        return self.choice.currentText() if self.choice.currentData() else ""

    def fill_menu(self) -> None:
        """The actions on what the slot has."""
        # Other programs can start one engine by one command.
        ready = isinstance(self._shown, Profile) and self._facts is not None
        self.menu.clear()
        self.menu.addAction(say("Save as…"), self.save_as).setEnabled(self._shown is not None)
        self.menu.addAction(say("Take a vLLM command…"), self.paste).setEnabled(
            self._facts is not None and not self._running
        )
        self.menu.addSeparator()
        self.menu.addAction(say("Write a systemd unit…"), lambda: self.choose("systemd")).setEnabled(ready)
        self.menu.addAction(say("Write a compose file…"), lambda: self.choose("compose")).setEnabled(ready)
        if self.name:
            self.menu.addSeparator()
            self.menu.addAction(say("Remove {name}…", name=self.name), self.ask_removal)

    def save_as(self) -> None:
        """Keep what the slot has under a name."""
        if self._shown:
            profile = self._shown.profile if isinstance(self._shown, Separation) else self._shown
            self.naming.ask(self._shown, self.name or (profile.served_name if profile else self._shown.shape))

    def paste(self) -> None:
        if self._facts:
            self.pasting.ask(self._facts)

    def choose(self, form: str) -> None:
        """Ask where that form of the command goes."""
        dialog = QFileDialog(self, say("Write a systemd unit") if form == "systemd" else say("Write a compose file"))
        dialog.setFileMode(QFileDialog.FileMode.AnyFile)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(ENDINGS[form])
        dialog.selectFile(f"vllm-{self._shown.served_name}.{ENDINGS[form]}")
        dialog.fileSelected.connect(lambda path: self.write(form, Path(path)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def write(self, form: str, path: Path) -> None:
        """Write that form of the command of what the slot has."""
        try:
            profile = absolute(self._shown)
            built = command.build(profile, profile.port or PORT, "", self._facts)
            named_files.write_text(exports.FORMS[form](profile, built, self._facts), path)
        except WorkbenchError as error:
            self.failed.emit(error)

    def ask_removal(self) -> None:
        name = self.name
        box = QMessageBox(self)
        box.setIcon(QMessageBox.Icon.Question)
        box.setText(say("Remove the profile {name}?", name=name))
        box.addButton(say("Cancel"), QMessageBox.ButtonRole.RejectRole)
        box.addButton(say("Remove"), QMessageBox.ButtonRole.DestructiveRole).clicked.connect(lambda: self._remove(name))
        self.question = box
        box.open()

    def _remove(self, name: str) -> None:
        try:
            profiles_kept.remove(name)
        except WorkbenchError as error:
            self.failed.emit(error)
        self._fill()

    def _fill(self) -> None:
        self.choice.clear()
        self.choice.addItem("", None)
        for kept in profiles_kept.listing():
            if kept.chosen:
                self.choice.addItem(kept.name, kept.chosen)
        self._select()

    def _select(self) -> None:
        shown = self._shown and profiles_kept.settled(self._shown)
        found = (index for index in range(1, self.choice.count()) if self.choice.itemData(index) == shown)
        self.choice.setCurrentIndex(next(found, 0))
        self.choice.setItemText(0, say("Not saved") if shown else say("No profile"))
        self.choice.setEnabled(self.choice.count() > 1 and not self._running)

    def _on_activated(self, index: int) -> None:
        if chosen := self.choice.itemData(index):
            self.picked.emit(chosen)
        else:
            self._select()
