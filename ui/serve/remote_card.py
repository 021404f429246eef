"""A server that somebody else runs, on the Serve page: its light, what it is, and why it was lost."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel

from ui import language
from ui.engines import Engines
from ui.plots.looks import NAMES
from ui.widgets.button import button
from ui.widgets.card import Card
from ui.widgets.elided import Elided
from ui.widgets.failure_card import FailureCard
from ui.widgets.label import label
from ui.widgets.side_line import SideMark
from ui.widgets.state_light import StateLight
from workbench import figures
from workbench.engine import remote
from workbench.engine_events import EngineConnected
from workbench.words import Sentence


class RemoteCard(Card):
    """Shows one side of `Engines` while it is a server elsewhere, and says what the user wants."""

    connect_asked = Signal()
    disconnect_asked = Signal()
    chat_asked = Signal()

    def __init__(self, side: str) -> None:
        super().__init__()
        self.side = side
        self._shown_error: object = None
        self.light = StateLight()
        self.name = Elided("muted")
        self.about = label(role="body", wrap=True)
        self.figures = label(role="caption", wrap=True)
        self.connect_button = button("Connect", self.connect_asked.emit, icon="link")
        self.disconnect_button = button("Disconnect", self.disconnect_asked.emit, icon="link-unlink")
        self.chat_button = button("Chat", self.chat_asked.emit, icon="chat-3-line")
        self.again_button = button("Connect again", self.connect_asked.emit, icon="restart-line")
        self.failure = FailureCard(self.again_button)
        title = QLabel()
        language.show(title.setText, NAMES[side])
        title.setProperty("role", "section")
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(SideMark(side))
        head.addWidget(title)
        head.addStretch(1)
        head.addWidget(self.light)
        for each in (self.chat_button, self.connect_button, self.disconnect_button):
            head.addWidget(each)
        self.body.setSpacing(10)
        self.body.addLayout(head)
        for each in (self.name, self.failure, self.about, self.figures):
            self.body.addWidget(each)

    def show_engine(self, engines: Engines, address: str) -> None:
        """Draw what this side is now; `address` is what stands in its form."""
        state, run = engines.state(self.side), engines.run(self.side)
        found = run.connected if engines.server(self.side) else None
        if engines.server(self.side) is None and state not in ("stopped", "failed"):
            state = "stopping"  # what ran here before is still being ended
        self.light.show_state(state)
        running = state not in ("stopped", "failed")
        self.connect_button.setVisible(state == "stopped")
        self.connect_button.setEnabled(bool(address))
        self.disconnect_button.setVisible(running)
        self.disconnect_button.setEnabled(state != "stopping")
        self.chat_button.setVisible(state == "ready")
        name = found.model if found and state == "ready" else address
        self.name.show_text(name)
        self.name.setVisible(bool(name))
        self.about.setVisible(state == "ready" or not address)
        self.figures.setVisible(state == "ready")
        if not address:
            language.bind(self.about.setText, "Write where the server is, and its key if it asks for one.")
        if found and state == "ready":
            language.show(self.about.setText, remote.description(found))
            language.show(self.figures.setText, _told(found))
        failed = state == "failed" and engines.server(self.side) is not None and run.error is not None
        self.failure.setVisible(failed)
        if failed and run.error is not self._shown_error:
            self._shown_error = run.error
            self.failure.show_failure(run.error)


def _told(found: EngineConnected) -> Sentence:
    values = {"count": len(found.models), "context": figures.tokens(found.context)}
    if not found.has_metrics:
        return Sentence(
            "{count} {count:model|models} · context {context} tokens. It shows no figures of its own: the Live panel "
            "has what the chat measures.",
            values,
        )
    return Sentence(
        "{count} {count:model|models} · context {context} tokens · its figures are in the Live panel", values
    )
