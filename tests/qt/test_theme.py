from dataclasses import fields

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QPushButton

from ui import icons, theme

TEXTS = ("text", "muted", "original", "quantized", "accepted", "rejected", "kv", "prefill", "decode")


def contrast(one: str, other: str) -> float:
    """WCAG 2.1 contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [value / 255 for value in QColor(colour).getRgb()[:3]]
        red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("worn", [theme.DARK, theme.LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("under", ["ground", "surface", "raised", "hover"])
def test_text_is_readable(worn, name, under):
    """WCAG AA for text of any size, in every colour that words have."""
    assert contrast(getattr(worn, name), getattr(worn, under)) >= 4.5


@pytest.mark.parametrize("worn", [theme.DARK, theme.LIGHT], ids=["dark", "light"])
def test_text_of_a_chosen_row_is_readable(worn):
    assert min(contrast(worn.text, worn.picked), contrast(worn.muted, worn.picked)) >= 4.5
    assert contrast(worn.ground, worn.accent) >= 4.5 and contrast(worn.ground, worn.muted) >= 4.5, "the primary button"


def test_text_on_banners_and_failures_is_readable():
    for worn in (theme.DARK, theme.LIGHT):
        for soft in ("quantized", "rejected"):
            assert contrast(worn.text, worn.soft(soft)) >= 4.5
            assert contrast(worn.muted, worn.soft(soft)) >= 4.5


def test_both_schemes_fill_the_style_sheet(qapp):
    for scheme in ("light", "dark"):
        theme.apply(qapp, scheme)
        assert theme.tokens().scheme == scheme
        sheet = qapp.styleSheet()
        assert "$" not in sheet and theme.tokens().surface in sheet


def test_a_change_is_told_after_the_sheet_is_in_place(qapp):
    seen = []

    def look():
        seen.append((theme.tokens().scheme, theme.tokens().ground in qapp.styleSheet()))

    theme.changed.connect(look)
    theme.apply(qapp, "light")
    theme.apply(qapp, "dark")
    theme.changed.disconnect(look)
    assert seen == [("light", True), ("dark", True)]


def test_it_follows_the_system_when_asked_to(qapp):
    hints = qapp.styleHints()
    theme.apply(qapp, "system")
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert theme.tokens().scheme == "light"
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert theme.tokens().scheme == "dark"
    theme.apply(qapp, "dark")
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert theme.tokens().scheme == "dark"


def test_icons_are_tinted_again(qapp):
    theme.apply(qapp, "dark")
    made = QPushButton()
    icons.bind(made.setIcon, "stack-line")
    before = made.icon().pixmap(16, 16).toImage()
    theme.apply(qapp, "light")
    assert made.icon().pixmap(16, 16).toImage() != before
    theme.apply(qapp, "dark")


def test_tokens_are_colours():
    for worn in (theme.DARK, theme.LIGHT):
        for each in fields(worn):
            assert each.name == "scheme" or QColor(getattr(worn, each.name)).isValid()
