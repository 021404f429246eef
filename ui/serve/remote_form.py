"""Where a server is that somebody else runs, its key, and which of its models is asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.eliding_combo import ElidingCombo
from ui.widgets.form_grid import FormGrid
from ui.widgets.label import label
from workbench.engine.connections import Connection
from workbench.engine_events import EngineConnected
from workbench.words import Sentence, say


@dataclass(frozen=True, slots=True)
class Wanted:
    """What stands in the form: `name` of the kept connection or "", the address as typed, `key` only where typed."""

    name: str
    address: str
    key: str
    model: str


class RemoteForm(QWidget):
    """Signals:
    connect_asked: the return key in a field
    save_asked, removal_asked(name)
    model_asked(name): another of the connected server's models
    """

    connect_asked = Signal()
    save_asked = Signal()
    removal_asked = Signal(str)
    model_asked = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[Connection, ...] = ()
        self._models: tuple[str, ...] = ()
        self.names = self._combo()
        self.address, self.key, self.model = QLineEdit(), QLineEdit(), self._combo()
        self.address.setPlaceholderText("http://machine:8000")
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.note = label(role="caption", wrap=True)
        self.save_button = button("Save as…", self.save_asked.emit, kind="quiet")
        self.remove_button = button("Remove…", lambda: self.removal_asked.emit(self.name), kind="quiet")
        rows = FormGrid()
        rows.add("Connection", self.names)
        rows.add("Address", self.address)
        rows.add("Key", self.key)
        rows.add("Model", self.model)
        actions = QHBoxLayout()
        actions.setSpacing(8)
        actions.addStretch(1)
        actions.addWidget(self.save_button)
        actions.addWidget(self.remove_button)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(8)
        whole.addLayout(rows)
        whole.addWidget(self.note)
        whole.addLayout(actions)
        self.names.activated.connect(self._on_picked)
        self.model.activated.connect(self._on_model)
        self.address.textEdited.connect(self._on_edited)
        self.address.returnPressed.connect(self.connect_asked)
        self.key.returnPressed.connect(self.connect_asked)
        language.changed.connect(self._speak)
        self.show_note("")
        self.show_state("stopped")
        self._speak()

    @property
    def name(self) -> str:
        """The kept connection that was picked; "" for a new one."""
        return self.names.currentData() or ""

    def wanted(self) -> Wanted:
        return Wanted(self.name, self.address.text().strip(), self.key.text(), self.model.currentData() or "")

    def show_kept(self, kept: Sequence[Connection], chosen: str = "") -> None:
        """Offer these; `chosen` is picked without a word."""
        self._kept = tuple(kept)
        self.names.clear()
        self.names.addItem("", "")
        for each in kept:
            self.names.addItem(each.name, each.name)
        self.names.setCurrentIndex(max(0, self.names.findData(chosen)))
        self._speak()

    def show_connection(self, connection: Connection) -> None:
        """Fill the form with a kept connection; its key stays where it is kept."""
        self.names.setCurrentIndex(max(0, self.names.findData(connection.name)))
        self.address.setText(connection.url)
        self.key.clear()
        self._models = ()
        self._offer(connection.model)

    def show_connected(self, found: EngineConnected) -> None:
        """What the server has."""
        self.address.setText(found.url)
        if self._models != found.models:
            self._models = found.models
            self._offer(found.model)

    def show_state(self, state: str) -> None:
        """By the side's state: what can be done now."""
        busy = state not in ("stopped", "failed")
        for each in (self.names, self.address, self.key):
            each.setEnabled(not busy)
        self.model.setEnabled(self.model.count() > 1)
        self.save_button.setEnabled(bool(self.address.text().strip()))
        self.remove_button.setVisible(bool(self.name))
        self.remove_button.setEnabled(not busy)

    def show_note(self, note: Sentence | str) -> None:
        language.show(self.note.setText, note)
        self.note.setVisible(bool(str(note)))

    # -- inside

    def _offer(self, chosen: str) -> None:
        self.model.clear()
        self.model.addItem("", "")
        for name in dict.fromkeys((*self._models, *([chosen] if chosen else []))):
            self.model.addItem(name, name)
        self.model.setCurrentIndex(max(0, self.model.findData(chosen)))
        self._speak()

    def _on_picked(self, _index: int) -> None:
        found = next((each for each in self._kept if each.name == self.name), Connection("", ""))
        self.show_connection(found)
        self.show_state("stopped")
        self._speak()

    def _on_model(self, _index: int) -> None:
        if self._models and (name := self.model.currentData()):
            self.model_asked.emit(name)

    def _on_edited(self, _text: str) -> None:
        self._models = ()
        self._offer("")  # speaks, too: the kept key is for the kept address
        self.show_state("stopped")

    def _combo(self) -> ElidingCombo:
        box = ElidingCombo()
        box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        box.addItem("", "")
        return box

    def _speak(self) -> None:
        self.names.setItemText(0, say("new"))
        self.model.setItemText(0, say("its first"))
        kept = any(each.name == self.name and each.url == self.address.text().strip() for each in self._kept)
        self.key.setPlaceholderText(say("the kept one") if kept else say("none"))
