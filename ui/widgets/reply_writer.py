"""Writes one answer into a document while it streams, at a cost that does not grow with its length."""

from collections.abc import Callable

from ui.widgets import highlight, markdown
from ui.widgets.code_ground import ABOVE_PX, BEGINS, BELOW_PX
from ui.widgets.pen import Pen
from workbench.chat.rendering import Added, Change, Closed, Code, Folded, Opened, Part, Reasoning, Splitter, Text, parts
from workbench.measure.timing import word_count
from workbench.words import say

LONGEST_PARAGRAPH = 4000  # characters; a longer one is continued as plain text, so that each piece stays cheap


class ReplyWriter:
    """Feed it pieces, then `finish`. Prose appears at once as it is and is formatted when its paragraph ends.

    `remember(text)` gives the target of a link that copies `text()`; `fold_link` is that of the link which opens and
    closes the reasoning.
    """

    def __init__(self, pen: Pen, remember: Callable[[Callable[[], str]], str], fold_link: str, unfold: bool = False):
        self._pen = pen
        self._remember = remember
        self._fold_link = fold_link
        self._unfold = unfold  # reasoning stays open when it ends
        self.answer_begin = pen.position  # in the document: the answer after any reasoning
        self._raw: list[str] = []
        self._splitter = Splitter()
        self._part: Part | None = None
        self._begin = pen.position  # of this answer
        self._part_begin = pen.position
        self._paragraph: list[str] = []
        self._length = 0
        self._blank, self._line_start = False, True
        self._pieces: list[str] = []  # of the code or reasoning now written
        self._apart: list[str] = []  # reasoning that came beside the text

    def feed(self, text: str, reasoning: bool = False) -> None:
        """Write a piece of the answer, or of the reasoning that the server sends apart."""
        if reasoning:
            if not self._apart:
                self._open(Reasoning("", False))
            self._apart.append(text)
            self._add(text)
            return
        if self._apart and isinstance(self._part, Reasoning):
            self._close()
        self._raw.append(text)
        self._take(self._splitter.feed(text))

    def finish(self) -> None:
        """The stream ended: whatever is open is what it looks like."""
        self._take(self._splitter.finish())
        if isinstance(self._part, Code):
            self._color()
        elif isinstance(self._part, Text):
            self._format_paragraph()
        elif isinstance(self._part, Reasoning):
            self._pen.block(self._pen.prose(after=8))
            self._pen.write(say("The reasoning was cut off: no answer yet."), self._pen.muted)
        self._part = None

    def _take(self, changes: list[Change]) -> None:
        for change in changes:
            match change:
                case Opened(part):
                    self._open(part)
                case Added(text):
                    self._add(text)
                case Closed():
                    self._close()
                case Folded():
                    self._fold()

    def _open(self, part: Part) -> None:
        if isinstance(self._part, Text):
            self._format_paragraph()
        self._part, self._pieces = part, []
        match part:
            case Code(language):
                self._open_code(language)
            case Reasoning():
                self._pen.block(self._pen.prose(after=2))
                self._part_begin = self._pen.position
                self._pen.write(say("Reasoning"), self._pen.caption)
                self._pen.block(self._pen.prose(after=8, indent=1), self._pen.muted)
            case Text():
                self._begin_paragraph()

    def _open_code(self, language: str) -> None:
        pen, pieces = self._pen, self._pieces
        head = pen.code_block()
        head.setProperty(BEGINS, True)
        head.setTopMargin(ABOVE_PX + BELOW_PX + 6)  # what stands before it may be code
        pen.block(head, pen.caption)
        if language:
            pen.write(f"{language}   ", pen.caption)
        pen.write(say("Copy"), pen.link(pen.caption, self._remember(lambda: _code(pieces))))
        pen.block(pen.code_block(), pen.code)
        self._part_begin = pen.position

    def _add(self, text: str) -> None:
        if isinstance(self._part, Text):
            self._add_prose(text)
            return
        self._pieces.append(text)
        self._pen.write(text, self._pen.code if isinstance(self._part, Code) else self._pen.muted)

    def _add_prose(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            # A blank line ends a paragraph, unless what follows is indented: then a list goes on.
            if self._blank and not line[0].isspace():
                self._format_paragraph()
                self._begin_paragraph()
            elif self._length > LONGEST_PARAGRAPH:
                self._begin_paragraph()  # what stands there is left as it is
            self._blank = line == "\n" and (self._blank or self._line_start)
            self._line_start = line.endswith("\n")
            self._paragraph.append(line)
            self._length += len(line)
            self._pen.write(line)

    def _begin_paragraph(self) -> None:
        self._pen.block(self._pen.prose())
        self._part_begin, self._paragraph, self._length = self._pen.position, [], 0
        self._blank, self._line_start = False, True

    def _format_paragraph(self) -> None:
        """Replace the paragraph's plain text, which is the document's end, by the formatted one."""
        text = "".join(self._paragraph).strip("\n")
        self._pen.erase_from(self._part_begin)
        if text.strip():
            markdown.write(self._pen, text)
        self._paragraph, self._length = [], 0

    def _close(self) -> None:
        if isinstance(self._part, Code):
            self._color()
        else:
            self._show_reasoning("".join(self._pieces))
        self._part = None

    def _color(self) -> None:
        code = _code(self._pieces)
        if "".join(self._pieces).endswith("\n"):
            self._pen.erase_last()  # the line end belongs to the closing mark
        highlight.colour(self._pen.document.findBlock(self._part_begin), code, self._part.language)
        self._pen.space_after(BELOW_PX + 8)
        self._pen.block(self._pen.prose(after=4))

    def _fold(self) -> None:
        """All so far was reasoning: a </think> came whose <think> stood in the prompt."""
        self._part_begin = self._begin
        thought = next((part.text for part in parts("".join(self._raw)) if isinstance(part, Reasoning)), "")
        self._show_reasoning(thought)
        self._part = None

    def _show_reasoning(self, text: str) -> None:
        """Finished reasoning: one line that opens and closes it, and the text when it is open."""
        pen = self._pen
        pen.erase_from(self._part_begin)
        self.answer_begin = pen.position
        if not text.strip():
            return
        pen.block(pen.prose(after=8 if not self._unfold else 2))
        words = word_count(text)
        pen.write(say("Reasoning, {count} {count:word|words}", count=f"{words:,}") + "   ", pen.caption)
        pen.write(say("Hide") if self._unfold else say("Show"), pen.link(pen.caption, self._fold_link))
        if self._unfold:
            pen.block(pen.prose(after=8, indent=1))
            pen.write(text.strip("\n"), pen.muted)
        self.answer_begin = pen.position


def _code(pieces: list[str]) -> str:
    return "".join(pieces).removesuffix("\n")
