"""Where the memory goes, drawn."""

from PySide6.QtGui import QColor

from ui.widgets.waterfall import APART, ROW, Part, Waterfall
from workbench.words import Sentence


def test_an_estimate_beyond_what_was_measured_stays_off_the_sizes(qtbot):
    """Others took more than was thought, so what is free begins further right, and its estimate reached into the
    column of sizes."""
    shown = Waterfall()
    qtbot.addWidget(shown)
    parts = [
        Part(Sentence("Other programs"), 1_000_000_000, 8_000_000_000),
        Part(Sentence("Free"), 9 * 10**9, 2 * 10**9),
    ]
    shown.show_parts(parts, 10_000_000_000)
    shown.resize(480, shown.sizeHint().height())
    drawn = shown.grab().toImage()
    end = shown.width() - shown._margins()[1]
    gap = {QColor(drawn.pixel(x, y)).name() for x in range(end + 1, end + APART - 1) for y in range(2 * ROW, 3 * ROW)}
    assert len(gap) == 1
