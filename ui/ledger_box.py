"""Who holds this machine's memory, as a small panel under the device strip: stated, really held, and an end to it."""

import asyncio
from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from ui import language
from ui.tasks import Tasks
from ui.widgets.button import button
from ui.widgets.elided import Elided
from ui.widgets.label import label
from workbench import figures, ledger
from workbench.book import Book, Entry, Held
from workbench.words import Sentence

LOOK_S = 2.0
WIDTH = 520
WHOLE = Qt.AlignmentFlag(0)  # of its cell
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class LedgerBox(QFrame):
    """Lies over the window while open and looks anew meanwhile; Escape, its cross or the same button close it."""

    def __init__(self, tasks: Tasks, window: QWidget):
        super().__init__(window)
        self.setObjectName("palette")
        self.setFixedWidth(WIDTH)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._tasks = tasks
        self._looking: asyncio.Task | None = None
        self._shown: Book | None = None
        self._anchor: QWidget | None = None
        self.rooms = label(role="muted", wrap=True)
        self.empty = label("No job and no engine of Lathe holds memory.", wrap=True)
        self.rows: dict[str, _Row] = {}  # by entry
        self.table = QWidget()
        self._grid = QGridLayout(self.table)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(0, 1)
        for column, name in ((1, "stated"), (2, "really held")):
            self._grid.addWidget(label(name, "caption"), 0, column, RIGHT)
        language.bind(self.setAccessibleName, "Who holds memory")
        self._lay_out()
        language.changed.connect(self._draw)
        self.hide()

    def open_below(self, widget: QWidget) -> None:
        """Show it under `widget`, or close it where it is open."""
        if self.isVisible():
            self.close()
            return
        self._anchor = widget
        self._draw()
        self.show()
        self.raise_()
        self.setFocus(Qt.FocusReason.PopupFocusReason)
        self._looking = self._tasks.start(self._look())

    def hideEvent(self, event) -> None:
        if self._looking:
            self._looking.cancel()
            self._looking = None
        super().hideEvent(event)

    def keyPressEvent(self, event) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        else:
            super().keyPressEvent(event)

    def show_book(self, book: Book) -> None:
        """What is held now."""
        self._shown = book
        self._draw()

    def _lay_out(self) -> None:
        whole = QVBoxLayout(self)
        whole.setContentsMargins(16, 8, 12, 16)
        whole.setSpacing(8)
        head = QHBoxLayout()
        head.addWidget(label("Who holds memory", "section"))
        head.addStretch(1)
        head.addWidget(button("Close", self.close, kind="quiet", icon="close-line", only_icon=True))
        whole.addLayout(head)
        for part in (self.empty, self.table, self.rooms):
            whole.addWidget(part)

    async def _look(self) -> None:
        while True:
            self.show_book(await asyncio.to_thread(ledger.book))
            await asyncio.sleep(LOOK_S)

    def _draw(self) -> None:
        book = self._shown
        held = book.held if book else ()
        self.empty.setVisible(book is not None and not held)
        self.table.setVisible(bool(held))
        for key in self.rows.keys() - {each.entry.id for each in held}:
            self.rows.pop(key).remove()
        for each in held:
            if each.entry.id not in self.rows:
                row = self.rows[each.entry.id] = _Row(each.entry, self.close)
                at = self._grid.rowCount()
                for column, part in enumerate(row.parts):
                    self._grid.addWidget(part, at, column, RIGHT if column else WHOLE)
                    part.show()  # at once, so that it counts in the height below
            self.rows[each.entry.id].show_held(each)
        if book:
            language.show(self.rooms.setText, "\n".join(map(str, _rooms(book))))
        else:
            language.bind(self.rooms.setText, "Looking…")
        for layout in (self._grid, self.layout()):
            layout.invalidate()
        self.resize(WIDTH, self.layout().totalHeightForWidth(WIDTH))  # the height of wrapped words at this width
        self.place()

    def place(self) -> None:
        """Lie under what opened it, inside the window."""
        if self._anchor:
            place = self._anchor.mapTo(self.parentWidget(), QPoint(0, self._anchor.height() + 8))
            self.move(min(place.x(), self.parentWidget().width() - WIDTH - 8), place.y())


class _Row:
    """One entry: who, what it stated, what it holds, and its end. Its parts stay while the figures move."""

    def __init__(self, entry: Entry, then: Callable[[], object]):
        self.title, self.stated, self.held = Elided(), label(), label()
        language.show(self.title.show_text, entry.title)
        self.stop = button("Stop", lambda: (ledger.stop(entry), then()), icon="stop-fill", kind="quiet", only_icon=True)
        language.bind(self.stop.setAccessibleName, "Stop {title}", title=entry.title)
        self.parts = (self.title, self.stated, self.held, self.stop)

    def show_held(self, held: Held) -> None:
        for told, sizes in ((self.stated, held.entry.needs), (self.held, held.used)):
            told.setText("\n".join(figures.bytes_of(sizes.get(device)) for device in _devices(held)))

    def remove(self) -> None:
        for part in self.parts:
            part.hide()
            part.deleteLater()


def _devices(held: Held) -> list[str]:
    """Those it stated something for; the processor's memory where it stated nothing."""
    return list(held.entry.needs) or ["cpu"]


def _rooms(book: Book) -> list[Sentence]:
    return [
        Sentence(
            "{device}: {free} of {total} free, {left} left when all have taken what they stated",
            {
                "device": room.name, "free": figures.bytes_of(room.free), "total": figures.bytes_of(room.total),
                "left": figures.bytes_of(max(0, book.left(device))),
            },
        )
        for device, room in book.rooms.items()
    ]  # fmt: skip
