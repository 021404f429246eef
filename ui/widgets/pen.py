"""Writes at the end of a text document, block by block, in the theme's formats."""

from PySide6.QtGui import QColor, QFont, QTextBlockFormat, QTextCharFormat, QTextCursor, QTextDocument, QTextFrameFormat

from ui import theme
from ui.widgets import code_ground
from workbench import words

# What a pen writes literally: QTextCursor would make blocks of them.
_LINE, _PARAGRAPH = "\u2028", "\u2029"


class Pen:
    """`block` begins a new block, `write` continues it. Formats are of the theme in use when it was made."""

    def __init__(self, document: QTextDocument):
        self._cursor = QTextCursor(document)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._fresh = document.isEmpty()
        worn = theme.tokens()
        self.plain = QTextCharFormat()
        self.plain.setForeground(QColor(worn.text))
        self.muted = QTextCharFormat()
        self.muted.setForeground(QColor(worn.muted))
        self.caption = QTextCharFormat(self.muted)
        self.caption.setProperty(QTextCharFormat.Property.FontPixelSize, 11)
        self.alarm = QTextCharFormat(self.caption)
        self.alarm.setForeground(QColor(worn.rejected))
        self.code = QTextCharFormat(self.plain)
        self.code.setFont(theme.mono(), QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesSpecifiedOnly)
        self.inline_code = QTextCharFormat(self.code)
        self.inline_code.setBackground(QColor(worn.soft("text", 0.08)))
        self.prompt_ground = QColor(worn.soft("text", 0.09))
        self._line_height = 160.0 if words.language() == "zh_CN" else 140.0

    @property
    def position(self) -> int:
        """Where the next character will stand."""
        return self._cursor.position()

    @property
    def document(self) -> QTextDocument:
        return self._cursor.document()

    def prose(self, before: int = 0, after: int = 8, indent: int = 0) -> QTextBlockFormat:
        """A block of prose with its space before and after, indented by levels of 20 px."""
        made = QTextBlockFormat()
        made.setTopMargin(before)
        made.setBottomMargin(after)
        made.setLeftMargin(20 * indent)
        made.setLineHeight(self._line_height, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        return made

    def code_block(self) -> QTextBlockFormat:
        """A line of code: a block of its own, so that one more line costs no more than the first."""
        made = QTextBlockFormat()
        made.setProperty(code_ground.IS_CODE, True)
        made.setLeftMargin(code_ground.PADDING_PX)
        made.setRightMargin(code_ground.PADDING_PX)
        return made

    def bold(self, base: QTextCharFormat, size: int = 0) -> QTextCharFormat:
        made = QTextCharFormat(base)
        made.setFontWeight(QFont.Weight.DemiBold)
        if size:
            made.setProperty(QTextCharFormat.Property.FontPixelSize, size)
        return made

    def link(self, base: QTextCharFormat, target: str) -> QTextCharFormat:
        """Text that can be pressed or reached with Tab; `target` is for the view alone and never loaded."""
        made = QTextCharFormat(base)
        made.setAnchor(True)
        made.setAnchorHref(target)
        made.setFontUnderline(True)
        return made

    def block(self, format: QTextBlockFormat, characters: QTextCharFormat | None = None) -> None:
        """Begin a block; one that nothing was written into is used again."""
        characters = characters or self.plain
        if self._fresh:
            self._cursor.setBlockFormat(format)
            self._cursor.setBlockCharFormat(characters)
        else:
            self._cursor.insertBlock(format, characters)
        self._fresh = True

    def write(self, text: str, format: QTextCharFormat | None = None) -> None:
        """Text in the block; each line end begins another block of the same kind."""
        if text:
            self._fresh = False
            self._cursor.insertText(text.replace("\r\n", "\n").replace(_PARAGRAPH, "\n"), format or self.plain)

    def write_line(self, text: str, format: QTextCharFormat | None = None) -> None:
        """As `write`, but line ends stay inside the block."""
        self.write(text.replace("\n", _LINE), format)

    def framed(self, text: str) -> None:
        """Literal text on a ground of its own, and an unused block after it."""
        frame = QTextFrameFormat()
        frame.setBackground(self.prompt_ground)
        frame.setPadding(8)
        frame.setTopMargin(0 if self.position <= 1 else 8)
        frame.setBottomMargin(8)
        if self._fresh and self.position == 0:
            thin = QTextBlockFormat()  # a frame cannot stand first in a document
            thin.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
            self._cursor.setBlockFormat(thin)
        self._cursor.insertFrame(frame)
        self._cursor.setBlockFormat(self.prose(after=0))
        self.write(text)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._fresh = True

    def erase_last(self) -> None:
        """Remove the last character; the block that it ended is continued."""
        self._cursor.deletePreviousChar()
        self._fresh = False

    def space_after(self, margin: int) -> None:
        """Room below the block that was written last."""
        format = self._cursor.blockFormat()
        format.setBottomMargin(margin)
        self._cursor.setBlockFormat(format)

    def erase_from(self, position: int) -> None:
        """Remove all from `position` to the end; the block there becomes the one to write into."""
        self._cursor.setPosition(position)
        self._cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        self._cursor.removeSelectedText()
        self._fresh = self._cursor.block().length() == 1
