"""One side of a conversation as text that grows at its end and stays where the reader is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from PySide6.QtCore import Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QColor, QGuiApplication, QTextCharFormat, QTextCursor, QTextOption
from PySide6.QtWidgets import QTextBrowser, QTextEdit

from ui import language, theme
from ui.widgets import code_ground
from ui.widgets.button import button
from ui.widgets.pen import Pen
from ui.widgets.reply_writer import ReplyWriter
from workbench.chat import rendering
from workbench.runs import Reply
from workbench.words import Sentence, say

AT_END_PX = 4  # a view that close to its end follows what is added


@dataclass(slots=True)
class Entry:
    """A prompt and this side's reply to it. `notes` stand under the reply: (sentence, whether it is an alarm).

    `differs_at` is the offset in the shown answer, in UTF-16 units, of the first word that the other side has not.
    """

    prompt: str
    reply: Reply | None = None
    notes: list[tuple[Sentence, bool]] = field(default_factory=list)
    differs_at: int | None = None
    unfold: bool = False
    begin: int = 0  # of the shown answer in the document
    end: int = 0


class Transcript(QTextBrowser):
    """`show_entries` shows a conversation, `add` continues it, `extend` and `flush` let its last reply grow.

    Nothing is ever loaded: no image, no style, and no link leads out of it.
    """

    copied = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QTextEdit.Shape.NoFrame)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setObjectName("transcript")
        self.document().setDocumentMargin(12)
        self.entries: list[Entry] = []
        self.following = True
        self._moving = False  # the scroll bar moves because of us
        self._came: list[tuple[bool, str]] = []
        self._copies: list[Callable[[], str]] = []
        self._pen = Pen(self.document())
        self._writer: ReplyWriter | None = None
        self._open: Entry | None = None  # whose reply is being written
        self._awaits = False  # its first text, which takes the place of the words that say so
        self._settle = QTimer(self, interval=0, singleShot=True)
        self._settle.timeout.connect(lambda: self._keep() if self.following else None)
        self.end_button = button("To the end", self.follow, icon="arrow-down-line")
        self.end_button.setParent(self)
        self.end_button.hide()
        self.anchorClicked.connect(self._on_link)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self.verticalScrollBar().rangeChanged.connect(self._on_ranged)
        theme.changed.connect(self.rebuild)
        language.changed.connect(self.rebuild)

    # -- the conversation --------------------------------------------------------------------------------------

    def show_entries(self, entries: list[Entry]) -> None:
        """Show these and nothing else, their end first."""
        self.entries, self.following = entries, True
        self.rebuild()

    def add(self, entry: Entry) -> None:
        """A new prompt, and the reply to it if one is to come; the reader is taken there."""
        self._close()
        self.entries.append(entry)
        self.following = True
        self._write(entry)
        self._keep()

    def extend(self, text: str, reasoning: bool = False) -> None:
        """A piece of the last reply came; it is drawn with the next `flush`."""
        self._came.append((reasoning, text))

    def flush(self) -> None:
        """Draw what came since the last time."""
        if self._open is None or not self._came:
            return
        came, self._came = self._came, []
        self._begin_text()
        for reasoning, pieces in groupby(came, key=itemgetter(0)):
            self._writer.feed("".join(text for _, text in pieces), reasoning)
        self._keep()

    def finish(self, notes: list[tuple[Sentence, bool]]) -> None:
        """The last reply ended; `notes` stand under it."""
        self.flush()
        if self._open is not None:
            self._open.notes = notes
            self._close()
        self._keep()

    def rebuild(self) -> None:
        """Write everything anew, as after a change of theme or language; the reader's place stays."""
        place = self.verticalScrollBar().value()
        self._moving = True
        self._came.clear()
        self._copies.clear()
        self._open = self._writer = None
        self.clear()
        self.document().setDefaultFont(self.font())
        self._pen = Pen(self.document())
        for entry in self.entries:
            self._write(entry)
        self._moving = False
        self._show_marks()
        self._keep(place)

    def answer_text(self, entry: Entry) -> str:
        """The answer as it is shown, without reasoning."""
        cursor = QTextCursor(self.document())
        cursor.setPosition(entry.begin)
        cursor.setPosition(entry.end, QTextCursor.MoveMode.KeepAnchor)
        return cursor.selectedText()

    def mark(self, entry: Entry, offset: int | None, note: tuple[Sentence, bool]) -> None:
        """Say `note` under the reply; mark the word at `offset` in its `answer_text` as the first that differs."""
        if offset is not None:
            entry.differs_at = len(self.answer_text(entry)[:offset].encode("utf-16-le")) // 2
        entry.notes = [*entry.notes, note]
        if entry is self.entries[-1]:
            self._pen.erase_from(entry.end)
            self._write_notes(entry)
            self._show_marks()
            self._keep()
        else:
            self.rebuild()

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, entry: Entry) -> None:
        self._pen.framed(entry.prompt)
        reply = entry.reply
        if reply is None:
            return
        fold_link = f"fold:{self.entries.index(entry)}"
        entry.begin = self._pen.position
        self._open, self._writer = entry, ReplyWriter(self._pen, self._remember, fold_link, entry.unfold)
        self._awaits = not reply.text and not reply.reasoning
        if self._awaits:
            self._pen.block(self._pen.prose())
            self._pen.write(say("Waiting for the first token…"), self._pen.muted)
        for text, reasoning in ((reply.reasoning, True), (reply.text, False)):
            if text:
                self._writer.feed(text, reasoning)
        if not reply.is_open:
            self._close()

    def _begin_text(self) -> None:
        if self._awaits:
            self._pen.erase_from(self._open.begin)
            self._awaits = False

    def _close(self) -> None:
        """End the reply that is being written, and say under it what is to be said."""
        if self._open is None:
            return
        entry, pen = self._open, self._pen
        self._begin_text()
        self._writer.finish()
        entry.begin, entry.end = self._writer.answer_begin, pen.position
        self._open = self._writer = None
        self._write_notes(entry)

    def _write_notes(self, entry: Entry) -> None:
        pen, text = self._pen, entry.reply.text
        for sentence, alarm in entry.notes:
            pen.block(pen.prose(after=2))
            pen.write_line(str(sentence), pen.alarm if alarm else pen.caption)
        if rendering.answer(text).strip():
            if entry.notes:
                pen.write("   ")
            else:
                pen.block(pen.prose(after=2))
            pen.write(
                say("Copy answer").replace(" ", "\u00a0"),
                pen.link(pen.caption, self._remember(lambda: rendering.answer(text))),
            )
        pen.block(pen.prose(after=8))

    def _remember(self, text: Callable[[], str]) -> str:
        self._copies.append(text)
        return f"copy:{len(self._copies) - 1}"

    def _show_marks(self) -> None:
        worn, marks = theme.tokens(), []
        for entry in self.entries:
            if entry.differs_at is None or entry.reply is None:
                continue
            mark = QTextEdit.ExtraSelection()
            mark.cursor = QTextCursor(self.document())
            mark.cursor.setPosition(min(entry.begin + entry.differs_at, entry.end))
            mark.cursor.movePosition(QTextCursor.MoveOperation.EndOfWord, QTextCursor.MoveMode.KeepAnchor)
            mark.format.setBackground(QColor(worn.soft("rejected", 0.22)))
            mark.format.setUnderlineStyle(QTextCharFormat.UnderlineStyle.SingleUnderline)
            mark.format.setUnderlineColor(QColor(worn.rejected))
            marks.append(mark)
        self.setExtraSelections(marks)

    # -- the reader's place ------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.following = True
        self._keep()

    def _keep(self, place: int | None = None) -> None:
        bar = self.verticalScrollBar()
        self._moving = True
        if self.following:
            bar.setValue(bar.maximum())
        elif place is not None:
            bar.setValue(place)
        self._moving = False
        self._show_button()

    def _on_scrolled(self, value: int) -> None:
        if not self._moving:
            self.following = value >= self.verticalScrollBar().maximum() - AT_END_PX
            self._show_button()

    def _on_ranged(self, _least: int, _most: int) -> None:
        """Qt lays a long text out later than it was written: the end has moved."""
        if self.following:
            self._settle.start()

    def _show_button(self) -> None:
        self.end_button.setVisible(not self.following)
        if not self.following:
            self.end_button.adjustSize()
            room = self.viewport().geometry()
            size = self.end_button.size()
            self.end_button.move(room.center().x() - size.width() // 2, room.bottom() - size.height() - 8)

    def paintEvent(self, event) -> None:
        code_ground.paint(self)
        super().paintEvent(event)

    def resizeEvent(self, event) -> None:
        self._moving = True  # another width moves the bar, not the reader
        super().resizeEvent(event)
        self._moving = False
        self._keep()

    def showEvent(self, event) -> None:
        self._moving = True  # when first shown, Qt goes to the text's cursor, which stands at the beginning
        super().showEvent(event)
        self._moving = False
        self._keep()

    # -- nothing leads out -------------------------------------------------------------------------------------

    def loadResource(self, kind: int, name: QUrl) -> None:
        """Nothing a model writes makes this program read a file or an address."""
        return None

    def _on_link(self, link: QUrl) -> None:
        action, _, number = link.toString().partition(":")
        if action == "copy":
            QGuiApplication.clipboard().setText(self._copies[int(number)]())
            self.copied.emit()
        elif action == "fold":
            entry = self.entries[int(number)]
            entry.unfold = not entry.unfold
            self.following = False
            self.rebuild()
