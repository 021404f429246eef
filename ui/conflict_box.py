"""The question when a job or an engine wants memory that others hold: end them, wait, take less, or try."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.label import label
from workbench import figures, ledger
from workbench.admission import Conflict, Smaller
from workbench.book import Held
from workbench.words import Sentence

WIDTH = 560


class ConflictBox(QDialog):
    """`answered` carries what was chosen: the entries to end, "wait", "smaller", "anyway", or None for nothing of it.

    Open it, never exec it.
    """

    answered = Signal(object)

    def __init__(self, parent: QWidget | None, conflict: Conflict):
        super().__init__(parent)
        short = conflict.shortage
        self._chosen: Any = None
        language.bind(self.setWindowTitle, "Memory is held by others")
        self.setFixedWidth(WIDTH)
        self.sentence = label(role="section", wrap=True)
        language.bind(self.sentence.setText, "{wanted} does not fit beside what runs", wanted=conflict.wanted)
        self.figures = label(role="muted", wrap=True)
        language.bind(self.figures.setText, "It needs {needed}; {left} of {device} memory are left.", **short.values)
        self._choices = QGridLayout()
        self._choices.setHorizontalSpacing(16)
        self._choices.setVerticalSpacing(8)
        self._choices.setColumnStretch(1, 1)
        self._ends_all = len(short.stops[0]) > 1
        self.stops = [self._stop(stop, short.device) for stop in short.stops]
        self.wait = self._choice(
            "Wait for it",
            "wait",
            Sentence("It starts by itself when the memory is free."),
            icon="time-line",
            first=True,
        )
        self.smaller = conflict.smaller and self._choice(
            "Smaller", "smaller", conflict.smaller.sentence, icon="subtract-line"
        )
        self.anyway = self._choice(
            "Start anyway", "anyway", Sentence("The need is an estimate; it may end for want of memory."),
            icon="play-line",
        )  # fmt: skip
        self._lay_out(short.standing, short.device)
        self.finished.connect(lambda _code: self.answered.emit(self._chosen))

    def _lay_out(self, standing: tuple[Held, ...], device: str) -> None:
        whole = QVBoxLayout(self)
        whole.setContentsMargins(24, 20, 24, 16)
        whole.setSpacing(8)
        whole.addWidget(self.sentence)
        whole.addWidget(self.figures)
        if self._ends_all:
            words = label(wrap=True)
            language.show(words.setText, "\n".join(str(_told(held, device)) for held in standing))
            whole.addWidget(words)
        whole.addSpacing(8)
        whole.addLayout(self._choices)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(button("Start nothing", self.reject, kind="quiet"))
        whole.addSpacing(4)
        whole.addLayout(foot)

    def _stop(self, stop: tuple[Held, ...], device: str) -> QWidget:
        if len(stop) == 1:
            return self._choice("Stop and start", stop, _told(stop[0], device), icon="stop-fill")
        size = figures.bytes_of(sum(held.gives(device) for held in stop))
        explained = Sentence("All of these end and give back {size}.", {"size": size})
        return self._choice("Stop and start", stop, explained, icon="stop-fill")

    def _choice(self, template: str, value: Any, explained: Sentence, icon: str, first: bool = False) -> QWidget:
        made = button(template, partial(self._choose, value), icon=icon, kind="primary" if first else "plain")
        made.setDefault(first)
        made.setAutoDefault(first)
        words = label(role="muted", wrap=True)
        language.show(words.setText, explained)
        language.show(made.setAccessibleDescription, explained)
        row = self._choices.rowCount()
        self._choices.addWidget(made, row, 0)
        self._choices.addWidget(words, row, 1, Qt.AlignmentFlag.AlignVCenter)
        return made

    def _choose(self, value: Any) -> None:
        self._chosen = value
        self.accept()


class Conflicts:
    """Asks above `window`, one question at a time; `box` is the one that is open."""

    def __init__(self, window: QWidget):
        self._window = window
        self._one = asyncio.Lock()
        self.box: ConflictBox | None = None

    async def ask(self, conflict: Conflict) -> Literal["wait", "anyway", "again"]:
        """What the user chose; what shall be ended is being ended. Raises Smaller, or CancelledError for nothing."""
        if self._one.locked():
            async with self._one:  # the answer before may have made room
                return "again"
        async with self._one:
            chosen = await self._answer(conflict)
        if chosen is None:
            raise asyncio.CancelledError
        if chosen == "smaller":
            raise Smaller(conflict.smaller)
        if isinstance(chosen, tuple):
            for held in chosen:
                ledger.stop(held.entry)
            return "wait"
        return chosen

    async def _answer(self, conflict: Conflict) -> Any:
        answered = asyncio.get_running_loop().create_future()
        self.box = box = ConflictBox(self._window, conflict)
        box.answered.connect(_setter(answered))
        box.open()
        try:
            return await answered
        finally:
            self.box = None
            box.close()
            box.deleteLater()


def _setter(future: asyncio.Future) -> Callable[[Any], None]:
    def set_once(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return set_once


def _told(held: Held, device: str) -> Sentence:
    """Who, what it stated and what it really holds."""
    values = {
        "title": held.entry.title, "stated": figures.bytes_of(held.entry.needs.get(device)),
        "held": figures.bytes_of(held.used.get(device)),
    }  # fmt: skip
    return Sentence("{title}: stated {stated}, holds {held}", values)
