"""The two engines as the chat sees them: which answer, as which model, and what may be done with a silent one."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.engines import Engines
from ui.tasks import Tasks
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.chat import defaults, remaining
from workbench.chat.conversation import SIDES, Conversation
from workbench.engine.endpoint import Endpoint
from workbench.errors import WorkbenchError
from workbench.words import Sentence

STATES = {
    "starting": Sentence("starting…"),
    "waiting": Sentence("waiting"),
    "stopping": Sentence("stopping…"),
    "failed": Sentence("did not start"),
    "stopped": Sentence("not running"),
}


class Sides(QObject):
    """`changed` when an engine did, or what is known of its model."""

    changed = Signal()

    def __init__(self, engines: Engines, tasks: Tasks):
        super().__init__()
        self._engines, self._tasks = engines, tasks
        self._models: dict[Path, Model | None] = {}
        self._own: dict[Path, defaults.Values] = {}
        self._answering: dict[str, str] = {}  # by side, the model chosen of those that its engine has
        engines.changed.connect(self._on_engine)

    @property
    def ready(self) -> list[str]:
        return [side for side in SIDES if self._engines.endpoint(side) is not None]

    def endpoint(self, side: str) -> Endpoint | None:
        """Where the side's engine answers, as the model that was chosen; None unless it is ready."""
        endpoint, chosen = self._engines.endpoint(side), self._answering.get(side)
        return replace(endpoint, model=chosen) if endpoint and chosen in self.names(side) else endpoint

    def names(self, side: str) -> list[str]:
        """The models that a ready engine answers as: the model itself first, then its adapters; all of a server's."""
        endpoint, profile = self._engines.endpoint(side), self._engines.profile(side)
        if endpoint and (connected := self._engines.run(side).connected):
            return list(connected.models)
        adapters = profile.adapters if profile else ()
        return [endpoint.model, *(adapter.name for adapter in adapters)] if endpoint else []

    def answer_as(self, side: str, name: str) -> None:
        """Ask this one of the side's models from now on."""
        self._answering[side] = name
        self.changed.emit()

    def model(self, side: str) -> Model | None:
        """What the side's model is; None where that is not known."""
        profile = self._engines.profile(side)
        return self._models.get(Path(profile.model)) if profile else None

    def own_values(self, sides: Iterable[str]) -> defaults.Values:
        """The sampling values that the first of these sides' models brings along: all are asked alike."""
        profiles = (self._engines.profile(side) for side in sides)
        return next((self._own.get(Path(profile.model), {}) for profile in profiles if profile), {})

    def state(self, side: str) -> Sentence | None:
        """Why the side does not answer; None when it does."""
        state = self._engines.state(side)
        if state == "failed" and (error := self._engines.run(side).error):
            return Sentence(error.message, error.values)
        return None if self._engines.endpoint(side) else STATES.get(state)

    def speculates(self, sides: list[str]) -> bool:
        """Whether one of these engines drafts, by its profile or a server's figures: both are asked alike."""
        profiles = (self._engines.profile(side) for side in sides)
        seen = any(self._engines.run(side).speculates for side in sides if self._engines.server(side))
        return seen or any(profile and profile.speculation for profile in profiles)

    def priorities(self, sides: Iterable[str], conversation: Conversation, max_tokens: int | None) -> dict[str, int]:
        """By side, the priority of the next request, of engines that schedule by priority."""
        profiles = {side: self._engines.profile(side) for side in sides}
        return {
            side: remaining.priority(max_tokens, conversation, side)
            for side, profile in profiles.items()
            if profile and profile.scheduling == "priority"
        }

    def action(self, side: str, conversation: Conversation) -> str | None:
        """What can be done with a side that has not answered the last prompt, as a template."""
        if self._engines.endpoint(side) is None:
            if self._engines.can_switch(side):
                return "Run this side instead"
            if self._engines.state(side) != "failed" or not self._engines.chosen(side):
                return None
            return "Connect again" if self._engines.server(side) else "Start again"
        behind = conversation.turns and side not in conversation.turns[-1].replies
        return "Answer here too" if behind else None

    def restart(self, side: str) -> None:
        """Start an engine that failed, as it was; connect to a server again."""
        if self._engines.state(side) == "failed" and (chosen := self._engines.chosen(side)):
            self._engines.start(side, chosen)

    def has_column(self, side: str, conversation: Conversation) -> bool:
        """A side with an engine, also one that was there and died, or with something said in this chat."""
        if any(side in turn.replies for turn in conversation.turns):
            return True
        state = self._engines.state(side)
        run = self._engines.run(side)
        return bool(run.ready or run.connected) if state == "failed" else state != "stopped"

    def _on_engine(self, side: str) -> None:
        if (profile := self._engines.profile(side)) is not None:
            folder = Path(profile.model)
            if folder not in self._models:
                self._models[folder] = None
                self._tasks.start(self._read(folder))
        self.changed.emit()

    async def _read(self, folder: Path) -> None:
        """Read what the column's head says of a model, off the window's thread."""
        self._own[folder] = await asyncio.to_thread(defaults.of_model, folder)
        self.changed.emit()
        with suppress(WorkbenchError):  # it serves; only its precision and size stay unsaid
            self._models[folder] = await asyncio.to_thread(inspect, folder)
            self.changed.emit()
