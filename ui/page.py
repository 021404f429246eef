"""What all pages have: a title line with one primary action, content, owned work, and redrawing per frame."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from ui import language, theme
from ui.frames import Frames
from ui.log_drawer import LogSource, Status
from ui.notices import Notices
from ui.tasks import Tasks
from ui.widgets.button import button
from ui.widgets.elided import Elided
from workbench.settings import Settings
from workbench.words import Sentence


class Page(QWidget):
    """A station of the window.

    `head` is the title line between title and primary action, `content` all below it. A page keeps its state in a
    plain object, folds events into it, calls `touch()`, and draws from it in `redraw()`.
    """

    def __init__(self, settings: Settings, tasks: Tasks, notices: Notices):
        super().__init__()
        self.settings = settings
        self.tasks = tasks
        self.notices = notices
        self.running: set[asyncio.Task] = set()
        self.primary: QPushButton | None = None
        self.heading = Elided("page")
        self.heading.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.heading.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.head = QHBoxLayout()
        self.head.setSpacing(12)
        self.content = QVBoxLayout()
        self.content.setSpacing(12)
        self._title_line = QHBoxLayout()
        self._title_line.setSpacing(16)
        self._title_line.addWidget(self.heading)
        self._title_line.addLayout(self.head, 1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(24, 16, 24, 16)
        whole.setSpacing(16)
        whole.addLayout(self._title_line)
        whole.addLayout(self.content, 1)
        self._frames = Frames(self)
        language.changed.connect(self.touch)
        theme.changed.connect(self.touch)

    def set_title(self, template: str, **values: Any) -> None:
        """The title line's text."""
        language.bind(self.heading.show_text, template, **values)

    def set_primary(self, template: str, method: Callable[[], Any], icon: str = "") -> QPushButton:
        """The page's one primary action, at the right of the title line."""
        made = button(template, method, kind="primary", icon=icon)
        made.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.primary = made
        self._title_line.addWidget(made)
        return made

    def arrive(self) -> None:
        """The window runs: begin what needs the loop (scanning, sampling). Not called for pictures of a page."""

    def would_lose(self) -> Sentence | None:
        """What closing the window now would lose, or None."""
        return None

    def statuses(self) -> list[Status]:
        """What of this page runs now, for the line at the foot of the window."""
        return []

    def logs(self) -> list[LogSource]:
        """The logs of this page's work, for the drawer."""
        return []

    def redraw(self) -> None:
        """Draw the page from its state."""

    def set_running(self, running: bool) -> None:
        """Work of this page began or all of it ended."""

    def touch(self) -> None:
        """The state changed: redraw within a frame, or when the page is shown again."""
        self._frames.touch()

    def begin(self, work: Coroutine) -> asyncio.Task:
        """Run `work` as this page's; an error is told to the user."""
        task = self.tasks.start(work)
        self.running.add(task)
        self.set_running(True)
        task.add_done_callback(self._on_ended)
        return task

    def cancel(self) -> None:
        """End all work of this page."""
        for task in list(self.running):
            task.cancel()

    def _on_ended(self, task: asyncio.Task) -> None:
        self.running.discard(task)
        if not self.running:
            self.set_running(False)
        self.touch()
