"""Chat: one prompt to the original and to the quantized model, side by side."""

from functools import partial

from PySide6.QtCore import Signal

from ui.chat.kept_chats import Keeper, opened_store
from ui.chat.sides import Sides
from ui.chat.surface import ChatSurface
from ui.engines import Engines
from ui.log_drawer import Status
from ui.notices import Notices
from ui.page import Page
from ui.tasks import Tasks
from ui.widgets import button
from ui.widgets.chat_column import ChatColumn
from ui.widgets.transcript import Entry
from workbench.chat import rendering, summary
from workbench.chat.asking import ask
from workbench.chat.conversation import SIDES, Conversation, Turn, messages
from workbench.chat.store import Store
from workbench.engine.sampling import Sampling
from workbench.errors import WorkbenchError
from workbench.events import Event, ReplyDone, ReplyText
from workbench.measure.timing import first_difference
from workbench.runs import Reply
from workbench.settings import Settings
from workbench.words import Sentence


class ChatPage(Page):
    """`replied` tells each finished reply (side, ReplyDone); `serve_asked` leads back to where engines start."""

    replied = Signal(str, object)
    serve_asked = Signal()

    def __init__(
        self, settings: Settings, tasks: Tasks, notices: Notices, engines: Engines, store: Store | None = None
    ):
        super().__init__(settings, tasks, notices)
        self.engines = engines
        self.store, self._keeper = store or opened_store(notices), Keeper(notices)
        self.sides = Sides(engines, tasks)
        self.conversation = Conversation()
        self._writing: Turn | None = None
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
        self.send_button = button("Send", self.send, kind="primary", icon="send-plane-2-line")
        self.stop_button = button("Stop", self.stop, kind="danger", icon="stop-line")
        leading = button("Go to Serve", self.serve_asked.emit)
        self.view = view = ChatSurface(leading, self.send_button, self.stop_button)
        self.history, self.columns, self.stack, self.empty = view.history, view.columns, view.stack, view.empty
        self.composer, self.sampling, self.fairness = view.composer, view.sampling, view.fairness
        self.content.addWidget(view)

    def _connect(self) -> None:
        self.composer.sent.connect(self.send)
        self.composer.escaped.connect(self.stop)
        self.composer.textChanged.connect(self.touch)
        self.history.picked.connect(self.open_chat)
        self.history.deleted.connect(self.delete_chat)
        self.history.new_asked.connect(self.new_chat)
        self.sides.changed.connect(self.touch)
        for side, column in self.columns.items():
            column.action.clicked.connect(partial(self._on_action, side))
            column.model_chosen.connect(partial(self.sides.answer_as, side))

    # -- asking ------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Ask every engine that is ready."""
        sides, prompt = self.sides.ready, self.composer.text
        if not prompt or not sides or self._writing:
            return
        chosen = self.sampling.chosen().allowed(self.sides.speculates(sides))
        turn = Turn(prompt, chosen.chosen(), together=len(sides) > 1 and self.sampling.together)
        asked = {side: messages(self.conversation, side, prompt) for side in sides}
        priorities = self.sides.priorities(sides, self.conversation, chosen.max_tokens)
        for side in sides:
            turn.replies[side] = Reply(self.sides.endpoint(side).model)
        self.conversation.turns.append(turn)
        self._keeper.keep(partial(self.store.add_turn, self.conversation, turn))
        for side, column in self.columns.items():
            column.transcript.add(Entry(prompt, turn.replies.get(side)))
        self.composer.clear()
        self._list_chats()
        self._writing = turn
        self.begin(self._answer(turn, asked, chosen, priorities))

    def answer_last(self, side: str) -> None:
        """Ask a side that was not running when the last prompt was sent."""
        turn = self.conversation.turns[-1]
        endpoint = self.sides.endpoint(side)
        if endpoint is None or self._writing:
            return
        before = Conversation(self.conversation.turns[:-1], self.conversation.system)
        turn.replies[side] = Reply(endpoint.model)
        self._keeper.keep(partial(self.store.save_reply, turn, side))
        column = self.columns[side]
        column.transcript.show_entries([*column.transcript.entries[:-1], Entry(turn.prompt, turn.replies[side])])
        self._writing = turn
        asked = {side: messages(before, side, turn.prompt)}
        sampling = Sampling(**turn.sampling).allowed(self.sides.speculates([side]))
        priorities = self.sides.priorities([side], before, sampling.max_tokens)
        self.begin(self._answer(turn, asked, sampling, priorities))

    def stop(self) -> None:
        """End the answers that are being written; what came so far stays."""
        self.cancel()

    async def _answer(self, turn: Turn, asked: dict[str, list], sampling: Sampling, priorities: dict[str, int]) -> None:
        try:
            await ask(turn, asked, self.sides.endpoint, sampling, partial(self._take, turn), priorities)
        finally:
            self._writing = None
            self._compare(turn)
            self._give_back(turn)

    def _take(self, turn: Turn, side: str, event: Event) -> None:
        reply = turn.replies[side]
        reply.apply(event)
        self._keeper.keep(partial(self.store.save_reply, turn, side))
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
        self._keeper.keep(partial(self.store.delete, conversation_id))
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

    # -- engines -----------------------------------------------------------------------------------------------

    def _on_action(self, side: str) -> None:
        if self.engines.endpoint(side) is not None:
            self.answer_last(side)
        elif self.engines.can_switch(side):
            self.begin(self.engines.switch(side))
        else:
            self.sides.restart(side)

    def showEvent(self, event) -> None:
        super().showEvent(event)
        self.composer.setFocus()

    # -- drawing -----------------------------------------------------------------------------------------------

    def statuses(self) -> list[Status]:
        return [Status(Sentence("An answer is being written"))] if self._writing else []

    def redraw(self) -> None:
        ready = self.sides.ready
        self.sampling.show_speculation(self.sides.speculates(ready))
        self.sampling.show_own(self.sides.own_values(ready))
        seen = [side for side in SIDES if self.sides.has_column(side, self.conversation)]
        self.view.show_columns(seen)
        for side in seen:
            self._draw_column(side, self.columns[side])
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
        endpoint, model = self.sides.endpoint(side), self.sides.model(side)
        served = endpoint.model if endpoint else (model.name if model else self._answered_as(side))
        column.show_head(served, model, self.sides.state(side))
        column.show_models(self.sides.names(side), served)
        column.offer(None if self._writing else self.sides.action(side, self.conversation))
        column.transcript.flush()

    def _answered_as(self, side: str) -> str:
        names = [turn.replies[side].model for turn in self.conversation.turns if side in turn.replies]
        return names[-1] if names else ""
