"""Chats on disk, where a failure to write ends no answer."""

from collections.abc import Callable
from pathlib import Path

from ui.notices import Notices
from workbench import paths
from workbench.chat.store import Store
from workbench.errors import WorkbenchError
from workbench.words import Sentence


def opened_store(notices: Notices) -> Store:
    """The chats of this home; where they cannot be kept, chatting works all the same."""
    try:
        store = Store(paths.home() / "chats.db")
    except WorkbenchError as error:
        notices.tell(error)
        return Store(Path(":memory:"))
    if store.note:
        notices.info(Sentence(store.note.message, store.note.values))
    return store


class Keeper:
    """Saves; a full disk is told once, not once a second."""

    def __init__(self, notices: Notices):
        self._notices = notices
        self._unsaved = False

    def keep(self, save: Callable[[], None]) -> None:
        try:
            save()
            self._unsaved = False
        except WorkbenchError as error:
            if not self._unsaved:
                self._notices.tell(error)
            self._unsaved = True
