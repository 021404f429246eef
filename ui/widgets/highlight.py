"""Colours for finished code."""

from pygments import lex
from pygments.lexers import get_lexer_by_name
from pygments.token import Token
from pygments.util import ClassNotFound
from PySide6.QtGui import QColor, QTextBlock, QTextCharFormat, QTextLayout

from ui import theme

LONGEST = 20_000  # characters; reading more would stop the window for longer than a reader notices

# Parts of speech in the theme's colours; a kind takes the colour of its nearest ancestor here.
COLOURS = {
    Token.Comment: "muted",
    Token.Keyword: "kv",
    Token.Literal.String: "accepted",
    Token.Literal.Number: "prefill",
    Token.Name.Function: "original",
    Token.Name.Class: "original",
    Token.Name.Decorator: "prefill",
    Token.Operator.Word: "kv",
}


def colour(first: QTextBlock, code: str, language: str) -> None:
    """Colour `code`, whose lines are blocks from `first` on. Only the look changes, nothing moves."""
    if len(code) > LONGEST:
        return
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return
    worn, formats = theme.tokens(), {}
    for name in set(COLOURS.values()):
        formats[name] = QTextCharFormat()
        formats[name].setForeground(QColor(getattr(worn, name)))
    block, column, ranges = first, 0, []
    for kind, text in lex(code, lexer):
        name = _colour_of(kind)
        for index, line in enumerate(text.split("\n")):
            if index:
                block.layout().setFormats(ranges)
                block, column, ranges = block.next(), 0, []
                if not block.isValid():
                    return
            length = len(line.encode("utf-16-le")) // 2  # Qt counts in 16-bit units
            if name and length:
                ranges.append(_range(column, length, formats[name]))
            column += length
    block.layout().setFormats(ranges)
    first.document().markContentsDirty(first.position(), block.position() + block.length() - first.position())


def _colour_of(kind) -> str | None:
    while kind is not None and kind not in COLOURS:
        kind = kind.parent
    return COLOURS.get(kind)


def _range(start: int, length: int, format: QTextCharFormat) -> QTextLayout.FormatRange:
    made = QTextLayout.FormatRange()
    made.start, made.length, made.format = start, length, format
    return made
