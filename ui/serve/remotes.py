"""The sides of the Serve page that are servers elsewhere: their forms, what is kept of them, and connecting."""

import asyncio
from collections.abc import Mapping

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QMessageBox

from ui.engines import SIDES, Engines
from ui.notices import Notices
from ui.serve.remote_form import RemoteForm
from ui.serve.source_choice import SourceChoice
from ui.tasks import Tasks
from ui.widgets.keep_dialog import KeepDialog
from workbench import keys
from workbench.engine import address, connections, remote
from workbench.engine.connections import Connection
from workbench.engine.endpoint import Endpoint
from workbench.errors import WorkbenchError
from workbench.words import Sentence, say


class Remotes(QObject):
    """`changed` when a side became a server, or a model of this machine again, or what is kept changed."""

    changed = Signal()

    def __init__(
        self, engines: Engines, tasks: Tasks, notices: Notices, choices: Mapping[str, SourceChoice],
        forms: Mapping[str, RemoteForm],
    ) -> None:  # fmt: skip
        super().__init__()
        self._engines, self._tasks, self._notices = engines, tasks, notices
        self.choices, self.forms = choices, forms
        self.question: QMessageBox | None = None
        self.naming: dict[str, KeepDialog] = {}
        for side in SIDES:
            self._attach(side)
        self._fill()

    def is_chosen(self, side: str) -> bool:
        """Whether the slot is a server elsewhere."""
        return self.choices[side].elsewhere

    def is_filled(self, side: str) -> bool:
        """Whether it is one with an address."""
        return self.is_chosen(side) and bool(self.forms[side].wanted().address)

    def choose(self, side: str) -> None:
        """Let the slot be a server elsewhere; what is typed next is its address."""
        if not self.is_chosen(side):
            self.choices[side].choose(True)
            self._on_choice(side)
        self.forms[side].address.setFocus()

    def connect_side(self, side: str) -> None:
        """Connect to what stands in the form."""
        self._tasks.start(self._connect(side))

    def redraw(self, side: str) -> None:
        """Draw the form by what the side is now."""
        form = self.forms[side]
        self.choices[side].setEnabled(not self._engines.is_running(side))
        if not self.is_chosen(side):
            return
        found = self._engines.run(side).connected
        if found and self._engines.state(side) == "ready":
            form.show_connected(found)
        form.show_state(self._engines.state(side))

    # -- inside

    def _attach(self, side: str) -> None:
        form = self.forms[side]
        self.choices[side].changed.connect(lambda: self._on_choice(side))
        form.connect_asked.connect(lambda: self.connect_side(side))
        form.model_asked.connect(lambda name: self._ask_another(side, name))
        form.removal_asked.connect(self.ask_removal)
        form.address.textEdited.connect(lambda _text: self.changed.emit())
        self.naming[side] = naming = KeepDialog(
            form,
            Sentence("Save the connection"),
            Sentence("Name of the connection"),
            Sentence("The connection of this name is replaced."),
            lambda name: connections.file_of(name).is_file(),
            lambda wanted, name: connections.keep(Connection(name, address.read(wanted.address), wanted.model)),
        )
        naming.kept.connect(lambda kept: self._tasks.start(self._keep_key(side, kept)))
        form.save_asked.connect(lambda: naming.ask(form.wanted(), form.name or _proposed(form.wanted().address)))

    def _on_choice(self, side: str) -> None:
        self._engines.clear(side)  # why the other source ended is of no use to this one
        self.changed.emit()

    async def _connect(self, side: str) -> None:
        form = self.forms[side]
        wanted = form.wanted()
        try:
            key, url = wanted.key, address.read(wanted.address)
            kept = connections.find(wanted.name) if wanted.name and not key else None
            if kept and kept.url == url:  # no other server is to learn it
                key = await asyncio.to_thread(keys.load, wanted.name)  # the keyring may ask the user to open it
            endpoint = Endpoint(url, key, wanted.model)
        except WorkbenchError as error:
            self._notices.tell(error)
            return
        form.show_note(remote.warning(endpoint) or "")
        self._engines.start(side, endpoint)

    def _ask_another(self, side: str, name: str) -> None:
        """Ask another of its models from now on."""
        if (endpoint := self._engines.endpoint(side)) and endpoint.model != name:
            self._engines.start(side, Endpoint(endpoint.url, endpoint.key, name))

    async def _keep_key(self, side: str, kept: Connection) -> None:
        """The key that was typed, or that the form's server was connected with, under the name that was chosen."""
        form, endpoint = self.forms[side], self._engines.endpoint(side)
        key, before = form.key.text(), form.name
        if not key and endpoint and endpoint.url == kept.url:
            key = endpoint.key
        if not key and before:
            key = await asyncio.to_thread(keys.load, before)
        if key or kept.name != before:
            saved = await asyncio.to_thread(keys.save, kept.name, key)
            form.show_note(saved.note or "")
        self._fill(side, kept.name)

    def ask_removal(self, name: str) -> None:
        box = QMessageBox(next(iter(self.forms.values())).window())
        box.setIcon(QMessageBox.Icon.Question)
        box.setText(say("Remove the connection {name} and its key?", name=name))
        box.addButton(say("Cancel"), QMessageBox.ButtonRole.RejectRole)
        remove = box.addButton(say("Remove"), QMessageBox.ButtonRole.DestructiveRole)
        remove.clicked.connect(lambda: self._tasks.start(self._remove(name)))
        self.question = box
        box.open()

    async def _remove(self, name: str) -> None:
        try:
            await asyncio.to_thread(connections.remove, name)
        except WorkbenchError as error:
            self._notices.tell(error)
        self._fill()

    def _fill(self, chosen_side: str = "", chosen: str = "") -> None:
        kept = connections.listing()
        for side, form in self.forms.items():
            form.show_kept(kept, chosen if side == chosen_side else form.name)
        self.changed.emit()


def _proposed(text: str) -> str:
    """A name for an address: its machine."""
    try:
        return address.read(text).partition("://")[2].partition("/")[0].partition(":")[0]
    except WorkbenchError:
        return ""
