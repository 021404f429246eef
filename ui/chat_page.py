"""Chat: one prompt to the original and to the quantized model, side by side."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from ui.chat_settings import ChatSettings
from ui.engines import Engines
from ui.log_drawer import Status
from ui.notices import Notices
from ui.page import Page
from ui.tasks import Tasks
from ui.widgets import EmptyState, button
from ui.widgets.chat_column import ChatColumn
from ui.widgets.chat_history import ChatHistory
from ui.widgets.composer import Composer
from ui.widgets.label import label
from ui.widgets.transcript import Entry
from workbench import paths
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.chat import rendering, summary
from workbench.chat.asking import ask
from workbench.chat.conversation import SIDES, Conversation, Turn, messages
from workbench.chat.store import Store
from workbench.engine.client import Endpoint, Sampling
from workbench.errors import WorkbenchError
from workbench.events import Event, ReplyDone, ReplyText
from workbench.measure.timing import first_difference
from workbench.runs import Reply
from workbench.settings import Settings
from workbench.words import Sentence

STATES = {
    "starting": Sentence("starting…"),
    "waiting": Sentence("waits for the other side"),
    "stopping": Sentence("stopping…"),
    "failed": Sentence("did not start"),
    "stopped": Sentence("not running"),
}


class ChatPage(Page):
    """`replied` tells each finished reply (side, ReplyDone); `serve_asked` leads back to where engines start."""

    replied = Signal(str, object)
    serve_asked = Signal()

    def __init__(
        self, settings: Settings, tasks: Tasks, notices: Notices, engines: Engines, store: Store | None = None
    ):
        super().__init__(settings, tasks, notices)
        self.engines = engines
        self.store = store or self._opened_store()
        self.conversation = Conversation()
        self._writing: Turn | None = None
        self._unsaved = False
        self._models: dict[Path, Model | None] = {}
        self._answering: dict[str, str] = {}  # by side, the model chosen of those that its engine has
        self.set_title("Chat")
        self._lay_out()
        self._connect()
        self._list_chats()
        self.redraw()

    def _lay_out(self) -> None:
        self.history_button = button("History", self._toggle_history, icon="history-line")
        self.history_button.setCheckable(True)
        self.head.addStretch(1)
        self.head.addWidget(self.history_button)
        self.head.addWidget(button("New chat", self.new_chat, icon="add-line"))
        self.history = ChatHistory()
        self.history.hide()
        self.columns = {side: ChatColumn(side) for side in SIDES}
        beside = QHBoxLayout()
        beside.setContentsMargins(0, 0, 0, 0)
        beside.setSpacing(12)
        for column in self.columns.values():
            beside.addWidget(column, 1)
        both = QWidget()
        both.setLayout(beside)
        self.empty = EmptyState(
            "chat-3-line",
            "No engine is running",
            "Start the original, the quantized model or both on Serve, then ask them here.",
            button("Go to Serve", self.serve_asked.emit),
        )
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty)
        self.stack.addWidget(both)
        self.composer = Composer()
        self.send_button = button("Send", self.send, kind="primary", icon="send-plane-2-line")
        self.stop_button = button("Stop", self.stop, kind="danger", icon="stop-line")
        self.sampling = ChatSettings()
        typing = QHBoxLayout()
        typing.setSpacing(8)
        typing.addWidget(self.composer, 1)
        typing.addWidget(self.send_button)
        typing.addWidget(self.stop_button)
        self.fairness = label(
            "Both get the same prompt and settings. Even at temperature 0, batching and speculation can change words.",
            "caption",
        )
        middle = QVBoxLayout()
        middle.setSpacing(8)
        middle.addWidget(self.stack, 1)
        middle.addLayout(typing)
        middle.addWidget(self.sampling)
        middle.addWidget(self.fairness)
        whole = QHBoxLayout()
        whole.setSpacing(12)
        whole.addWidget(self.history)
        whole.addLayout(middle, 1)
        self.content.addLayout(whole)

    def _connect(self) -> None:
        self.composer.sent.connect(self.send)
        self.composer.escaped.connect(self.stop)
        self.composer.textChanged.connect(self.touch)
        self.history.picked.connect(self.open_chat)
        self.history.deleted.connect(self.delete_chat)
        self.history.new_asked.connect(self.new_chat)
        self.engines.changed.connect(self._on_engine)
        for side, column in self.columns.items():
            column.action.clicked.connect(partial(self._on_action, side))
            column.model_chosen.connect(partial(self._answer_as, side))

    # -- asking ------------------------------------------------------------------------------------------------

    @property
    def ready_sides(self) -> list[str]:
        return [side for side in SIDES if self.engines.endpoint(side) is not None]

    def send(self) -> None:
        """Ask every engine that is ready."""
        sides, prompt = self.ready_sides, self.composer.text
        if not prompt or not sides or self._writing:
            return
        chosen = self.sampling.chosen().allowed(self._speculates(sides))
        turn = Turn(prompt, chosen.chosen(), together=len(sides) > 1 and self.sampling.together)
        asked = {side: messages(self.conversation, side, prompt) for side in sides}
        for side in sides:
            turn.replies[side] = Reply(self._endpoint(side).model)
        self.conversation.turns.append(turn)
        self._keep(partial(self.store.add_turn, self.conversation, turn))
        for side, column in self.columns.items():
            column.transcript.add(Entry(prompt, turn.replies.get(side)))
        self.composer.clear()
        self._list_chats()
        self._writing = turn
        self.begin(self._answer(turn, asked, chosen))

    def answer_last(self, side: str) -> None:
        """Ask a side that was not running when the last prompt was sent."""
        turn = self.conversation.turns[-1]
        endpoint = self._endpoint(side)
        if endpoint is None or self._writing:
            return
        before = Conversation(self.conversation.turns[:-1], self.conversation.system)
        turn.replies[side] = Reply(endpoint.model)
        self._keep(partial(self.store.save_reply, turn, side))
        column = self.columns[side]
        column.transcript.show_entries([*column.transcript.entries[:-1], Entry(turn.prompt, turn.replies[side])])
        self._writing = turn
        asked = {side: messages(before, side, turn.prompt)}
        sampling = Sampling(**turn.sampling).allowed(self._speculates([side]))
        self.begin(self._answer(turn, asked, sampling))

    def stop(self) -> None:
        """End the answers that are being written; what came so far stays."""
        self.cancel()

    async def _answer(self, turn: Turn, asked: dict[str, list], sampling: Sampling) -> None:
        try:
            await ask(turn, asked, self._endpoint, sampling, partial(self._take, turn))
        finally:
            self._writing = None
            self._compare(turn)
            self._give_back(turn)

    def _take(self, turn: Turn, side: str, event: Event) -> None:
        reply = turn.replies[side]
        reply.apply(event)
        self._keep(partial(self.store.save_reply, turn, side))
        if self._is_shown(turn):
            transcript = self.columns[side].transcript
            if isinstance(event, ReplyText):
                transcript.extend(event.text, event.reasoning)
            elif not reply.is_open:
                transcript.finish(summary.notes(reply, turn.together))
        if isinstance(event, ReplyDone) and event.ttft_s is not None:
            self.replied.emit(side, event)
        self.touch()

    def _give_back(self, turn: Turn) -> None:
        """A prompt that nobody answered a word to returns to where it was typed."""
        lost = all(reply.error and not reply.text and not reply.reasoning for reply in turn.replies.values())
        if lost and self._is_shown(turn) and not self.composer.text:
            self.composer.setPlainText(turn.prompt)

    def _compare(self, turn: Turn) -> None:
        """Mark where the two answers part, when both came to their end."""
        if not self._is_shown(turn) or not all(turn.replies.get(side) for side in SIDES):
            return
        if all(reply.state == "done" and rendering.answer(reply.text).strip() for reply in turn.replies.values()):
            shown = [column.transcript for column in self.columns.values()]
            entries = [transcript.entries[self.conversation.turns.index(turn)] for transcript in shown]
            texts = [transcript.answer_text(entry) for transcript, entry in zip(shown, entries, strict=True)]
            parted = first_difference(*texts)
            note = (summary.difference_note(parted), False)
            places = (parted.at, parted.other_at) if parted else (None, None)
            for transcript, entry, place in zip(shown, entries, places, strict=True):
                transcript.mark(entry, place, note)

    # -- chats -------------------------------------------------------------------------------------------------

    def new_chat(self) -> None:
        """Begin an empty conversation; the present one stays in the history."""
        self._show(Conversation())
        self.composer.setFocus()

    def open_chat(self, conversation_id: int) -> None:
        if conversation_id == self.conversation.id:
            return
        try:
            self._show(self.store.load(conversation_id))
        except WorkbenchError as error:
            self.notices.tell(error)
            self._list_chats()

    def delete_chat(self, conversation_id: int) -> None:
        if conversation_id == self.conversation.id:
            self.new_chat()
        self._keep(partial(self.store.delete, conversation_id))
        self._list_chats()

    def _show(self, conversation: Conversation) -> None:
        self.cancel()
        self.conversation = conversation
        for side, column in self.columns.items():
            entries = []
            for turn in conversation.turns:
                reply = turn.replies.get(side)
                entries.append(Entry(turn.prompt, reply, summary.notes(reply, turn.together) if reply else []))
            column.transcript.show_entries(entries)
        for turn in conversation.turns:
            self._compare(turn)
        self._list_chats()
        self.touch()

    def _is_shown(self, turn: Turn) -> bool:
        return any(turn is one for one in self.conversation.turns)

    def _list_chats(self) -> None:
        self.history.show_chats(self.store.listing(), self.conversation.id)

    def _toggle_history(self) -> None:
        self.history.setVisible(self.history_button.isChecked())

    def _opened_store(self) -> Store:
        """The chats of this home; where they cannot be kept, chatting works all the same."""
        try:
            store = Store(paths.home() / "chats.db")
        except WorkbenchError as error:
            self.notices.tell(error)
            return Store(Path(":memory:"))
        if store.note:
            self.notices.info(Sentence(store.note.message, store.note.values))
        return store

    def _keep(self, save: Callable[[], None]) -> None:
        """Save. A full disk does not end the answer and is told once, not once a second."""
        try:
            save()
            self._unsaved = False
        except WorkbenchError as error:
            if not self._unsaved:
                self.notices.tell(error)
            self._unsaved = True

    # -- engines -----------------------------------------------------------------------------------------------

    def _on_engine(self, side: str) -> None:
        if (profile := self.engines.profile(side)) is not None:
            folder = Path(profile.model)
            if folder not in self._models:
                self._models[folder] = None
                self.tasks.start(self._read(folder))
        self.touch()

    async def _read(self, folder: Path) -> None:
        """Read what the column's head says of a model, off the window's thread."""
        with suppress(WorkbenchError):  # it serves; only its precision and size stay unsaid
            self._models[folder] = await asyncio.to_thread(inspect, folder)
            self.touch()

    def _speculates(self, sides: list[str]) -> bool:
        """Whether one of these engines drafts: both are asked alike."""
        profiles = (self.engines.profile(side) for side in sides)
        return any(profile and profile.speculation for profile in profiles)

    def _on_action(self, side: str) -> None:
        if self.engines.endpoint(side) is not None:
            self.answer_last(side)
        elif self.engines.can_switch(side):
            self.begin(self.engines.switch(side))

    def _action_of(self, side: str) -> str | None:
        if self._writing:
            return None
        if self.engines.endpoint(side) is None:
            return "Run this side instead" if self.engines.can_switch(side) else None
        behind = self.conversation.turns and side not in self.conversation.turns[-1].replies
        return "Answer here too" if behind else None

    def showEvent(self, event) -> None:
        super().showEvent(event)
        self.composer.setFocus()

    # -- drawing -----------------------------------------------------------------------------------------------

    def statuses(self) -> list[Status]:
        return [Status(Sentence("An answer is being written"))] if self._writing else []

    def redraw(self) -> None:
        ready = self.ready_sides
        self.sampling.show_speculation(self._speculates(ready))
        seen = [side for side in SIDES if self._has_column(side)]
        self.stack.setCurrentIndex(1 if seen else 0)
        for side, column in self.columns.items():
            column.setVisible(side in seen)
            if side in seen:
                self._draw_column(side, column)
        self.send_button.setVisible(not self._writing)
        self.stop_button.setVisible(bool(self._writing))
        self.send_button.setEnabled(bool(ready and self.composer.text))
        usable = bool(ready or self.composer.text)
        if usable and not self.composer.isEnabled():
            self.composer.setEnabled(True)
            self.composer.setFocus()
        self.composer.setEnabled(usable)
        self.sampling.show_order(len(ready) > 1)
        self.fairness.setVisible(len(ready) > 1)

    def _draw_column(self, side: str, column: ChatColumn) -> None:
        endpoint = self._endpoint(side)
        profile = self.engines.profile(side)
        model = self._models.get(Path(profile.model)) if profile else None
        state = None if endpoint else STATES.get(self.engines.state(side))
        served = endpoint.model if endpoint else (model.name if model else self._answered_as(side))
        column.show_head(served, model, state)
        column.show_models(self._names(side) if endpoint else [], served)
        column.offer(self._action_of(side))
        column.transcript.flush()

    def _names(self, side: str) -> list[str]:
        """The models that the side's engine answers as: the model itself first, then its adapters."""
        endpoint, profile = self.engines.endpoint(side), self.engines.profile(side)
        return [endpoint.model, *(adapter.name for adapter in profile.adapters)] if endpoint and profile else []

    def _endpoint(self, side: str) -> Endpoint | None:
        """Where the side's engine answers, as the model that was chosen; None unless it is ready."""
        endpoint, chosen = self.engines.endpoint(side), self._answering.get(side)
        return replace(endpoint, model=chosen) if endpoint and chosen in self._names(side) else endpoint

    def _answer_as(self, side: str, name: str) -> None:
        self._answering[side] = name
        self.touch()

    def _has_column(self, side: str) -> bool:
        """A side with an engine, or with something said in this chat."""
        return self.engines.state(side) not in ("stopped", "failed") or any(
            side in turn.replies for turn in self.conversation.turns
        )

    def _answered_as(self, side: str) -> str:
        names = [turn.replies[side].model for turn in self.conversation.turns if side in turn.replies]
        return names[-1] if names else ""
