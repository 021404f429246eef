"""Markdown as formatted text, written with a pen. HTML stays text, nothing is loaded from anywhere."""

from markdown_it import MarkdownIt
from markdown_it.token import Token
from PySide6.QtGui import QTextCharFormat

from ui.widgets.pen import Pen

HEADING_PX = {"h1": 18, "h2": 16, "h3": 15}

# Switched off: what would hide or load something (HTML, images, definitions of references), and code by indent,
# which models mean as a list's continuation.
_PARSER = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["table", "strikethrough"])
    .disable(["code", "html_block", "html_inline", "image", "reference"])
)


def write(pen: Pen, text: str) -> None:
    """Write one or several paragraphs, each into blocks of its own."""
    _Writer(pen).write(_PARSER.parse(text))


class _Writer:
    def __init__(self, pen: Pen):
        self._pen = pen
        self._lists: list[int | None] = []  # the next number of each open list; None for bullets
        self._marker = ""
        self._quotes = 0
        self._heading = ""
        self._cells: int | None = None

    def write(self, tokens: list[Token]) -> None:
        for token in tokens:
            match token.type:
                case "bullet_list_open":
                    self._lists.append(None)
                case "ordered_list_open":
                    self._lists.append(int(token.attrs.get("start", 1)))
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                case "list_item_open":
                    self._begin_item()
                case "blockquote_open":
                    self._quotes += 1
                case "blockquote_close":
                    self._quotes -= 1
                case "heading_open":
                    self._heading = token.tag
                    self._pen.block(self._pen.prose(before=8, after=4))
                case "heading_close":
                    self._heading = ""
                case "paragraph_open":
                    self._begin_paragraph()
                case "tr_open":
                    self._cells = 0
                    self._pen.block(self._pen.prose(after=2))
                case "th_open" | "td_open":
                    self._pen.write("   │   " if self._cells else "", self._pen.muted)
                    self._cells = (self._cells or 0) + 1
                    self._heading = "th" if token.type == "th_open" else ""
                case "th_close":
                    self._heading = ""
                case "hr":
                    self._pen.block(self._pen.prose())
                    self._pen.write("─" * 24, self._pen.muted)
                case "fence":
                    self._pen.block(self._pen.code_block(), self._pen.code)
                    self._pen.write(token.content.removesuffix("\n"), self._pen.code)
                case "inline":
                    self._write_inline(token.children or [])

    def _begin_item(self) -> None:
        number = self._lists[-1]
        self._marker = "•" if number is None else f"{number}."
        if number is not None:
            self._lists[-1] = number + 1

    def _begin_paragraph(self) -> None:
        format = self._pen.prose(after=4 if self._lists else 8, indent=len(self._lists) + self._quotes)
        if self._marker:
            format.setTextIndent(-18)
        self._pen.block(format)
        if self._marker:
            self._pen.write(f"{self._marker}\u2002", self._pen.muted)
            self._marker = ""

    def _write_inline(self, children: list[Token]) -> None:
        base = self._pen.muted if self._quotes else self._pen.plain
        if self._heading:
            base = self._pen.bold(base, HEADING_PX.get(self._heading, 0))
        strong = slanted = struck = 0
        target, shown = "", ""
        for child in children:
            match child.type:
                case "strong_open" | "strong_close":
                    strong += child.nesting
                case "em_open" | "em_close":
                    slanted += child.nesting
                case "s_open" | "s_close":
                    struck += child.nesting
                case "link_open":
                    target = str(child.attrs.get("href", ""))
                    shown = ""
                case "link_close":
                    # The address is shown, not linked: a model's answer opens nothing.
                    if shown != target:
                        self._pen.write(f" ({target})", self._pen.muted)
                case "code_inline":
                    self._pen.write_line(child.content, self._pen.inline_code)
                case "softbreak" | "hardbreak":
                    self._pen.write_line("\n", base)
                case _:
                    shown += child.content
                    self._pen.write_line(child.content, _dressed(self._pen, base, strong, slanted, struck))


def _dressed(pen: Pen, base: QTextCharFormat, strong: int, slanted: int, struck: int) -> QTextCharFormat:
    if not (strong or slanted or struck):
        return base
    made = pen.bold(base) if strong else QTextCharFormat(base)
    made.setFontItalic(bool(slanted))
    made.setFontStrikeOut(bool(struck))
    return made
