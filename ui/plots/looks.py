"""How what belongs to one side is told from the other's: by colour, and by dash, mark and filling beside it.

A key is a side, "original" or "quantized", or one leg of a separated side, such as "original/prefill" or
"quantized/decode 2". `dotted` makes the key of its second line in a plot. `DEVICE` belongs to no side.
"""

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from ui import theme
from workbench.words import Sentence

SIDES = ("original", "quantized")
DEVICE = "device"
NAMES = {"original": Sentence("Original"), "quantized": Sentence("Quantized")}
MARKS = {"original": "o", "quantized": "d"}

_DOTTED = " dotted"
_LINES = {"original": Qt.PenStyle.SolidLine, "quantized": Qt.PenStyle.DashLine}


def dotted(key: str) -> str:
    """The key of a line that belongs to `key` and is less than it: those who wait beside those who run."""
    return key + _DOTTED


def side_of(key: str) -> str:
    return key.removesuffix(_DOTTED).partition("/")[0]


def leg_of(key: str) -> str:
    """prefill, decode, "decode 2" …, or "" for an engine that does both."""
    return key.removesuffix(_DOTTED).partition("/")[2]


def leg_word(key: str) -> Sentence | str:
    """The leg's name to show; "" for an engine that does both."""
    role, _, number = leg_of(key).partition(" ")
    if role == "prefill":
        return Sentence("prefill {number}", {"number": number}) if number else Sentence("prefill")
    if role == "decode":
        return Sentence("decode {number}", {"number": number}) if number else Sentence("decode")
    return ""


def spoken(key: str) -> str:
    """The side's name and the leg's, for those who see no mark."""
    return f"{NAMES[side_of(key)]} {leg_word(key)}".strip()


def colour(key: str) -> QColor:
    if side_of(key) == DEVICE:
        return QColor(theme.tokens().muted)
    return QColor(getattr(theme.tokens(), side_of(key)))


def dash(key: str) -> Qt.PenStyle:
    """The decode leg answers the user: it has the side's own line, the prefill leg one of dashes and dots."""
    if key.endswith(_DOTTED):
        return Qt.PenStyle.DotLine
    if leg_of(key).startswith("prefill"):
        return Qt.PenStyle.DashDotLine
    return _LINES.get(side_of(key), Qt.PenStyle.SolidLine)


def is_filled(key: str) -> bool:
    """The original is filled and the quantized open: told apart where both lie on one place."""
    return side_of(key) == "original"
