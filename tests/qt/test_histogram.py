"""The plot of weights with ordinary and with awkward counts."""

import time

import numpy as np
import pytest

from ui import language, theme
from ui.plots.histogram import Counts, HistogramPlot


@pytest.fixture
def plot(qtbot):
    plot = HistogramPlot()
    qtbot.addWidget(plot)
    plot.resize(600, 300)
    plot.show()
    return plot


def bell(bins=120, total=300_000):
    places = np.linspace(-4, 4, bins)
    return tuple(int(count) for count in total * np.exp(-(places**2) / 2) / bins)


def test_before_after_and_levels_are_drawn(plot):
    levels = tuple(np.linspace(-0.2, 0.2, 16))
    plot.show_counts(Counts(-0.25, 0.25, bell(), bell()[::-1], levels))
    drawn = plot.curves()
    assert len(drawn["before"][1]) == 120 and len(drawn["before"][0]) == 121
    assert 10 ** drawn["before"][1][60] - 1 == pytest.approx(bell()[60])
    assert 10 ** drawn["after"][1][0] - 1 == pytest.approx(bell()[-1], abs=1e-6)
    assert sorted(set(drawn["levels"][0])) == pytest.approx(levels)
    assert max(drawn["levels"][1]) < 0, "the ticks hide no bar"


def test_a_new_layer_leaves_nothing_of_the_old_one(plot):
    plot.show_counts(Counts(-1, 1, bell(), bell(), (0.0, 0.5)))
    plot.show_counts(Counts(-1, 1, bell()))
    drawn = plot.curves()
    assert all(data is None or len(data) == 0 for data in (*drawn["after"], *drawn["levels"]))
    plot.show_counts(None)
    assert all(data is None or len(data) == 0 for curve in plot.curves().values() for data in curve)


def test_values_that_are_not_finite_are_counted_in_words(plot):
    plot.show_counts(Counts(-1, 1, bell(), not_finite=3))
    assert plot.remark == "3 not finite"
    assert len(plot.curves()["before"][1]) == 120


def test_a_tensor_without_any_finite_value_says_so(plot):
    plot.show_counts(Counts(-1, 1, (0,) * 120, not_finite=1_000))
    assert plot.remark == "no finite value to draw · 1,000 not finite"
    plot.grab()


@pytest.mark.parametrize("low, high", [(0.5, 0.5), (0.25, 0.75), (0.0, 0.0)])
def test_equal_values_are_one_bar(plot, low, high):
    counts = [0] * 120
    counts[60] = 5_000
    plot.show_counts(Counts(low, high, tuple(counts)))
    edges, heights = plot.curves()["before"]
    assert np.count_nonzero(heights) == 1
    assert 10 ** heights.max() - 1 == pytest.approx(5_000)
    assert np.all(np.diff(edges) > 0)
    assert plot.remark.startswith("all values near ")
    plot.grab()


def test_one_far_value_stays_visible_beside_the_rest(plot):
    counts = [0] * 120
    counts[0], counts[-1] = 331_775, 1
    plot.show_counts(Counts(-0.001, 10.0, tuple(counts)))
    heights = plot.curves()["before"][1]
    assert heights[-1] > 0.05 * heights[0]


def test_counts_on_the_axis_are_read_as_counts(plot):
    plot.show_counts(Counts(-1, 1, (0, 1, 10, 100_000)))
    axis = plot.plot.getPlotItem().getAxis("left")
    (_, marks), *_ = axis.tickValues(0, 5.1, 400)
    assert axis.tickStrings(marks, 1, 1) == ["0", "1", "10", "100", "1,000", "10,000", "100,000"]


def test_colours_follow_the_theme(plot, qapp):
    theme.apply(qapp, "light")
    pen = plot.plot.getPlotItem().getAxis("bottom").textPen().color().name()
    fill = plot.plot.backgroundBrush().color().name()
    theme.apply(qapp, "dark")
    assert (pen, fill) == (theme.LIGHT.muted.lower(), theme.LIGHT.surface.lower())


def test_words_follow_the_language(plot):
    plot.show_counts(Counts(-1, 1, bell(), bell()))
    language.choose("zh_CN")
    assert "原始" in plot.legend_text and "量化" in plot.legend_text


def test_a_thousand_layers_are_shown_quickly(plot):
    started = time.perf_counter()
    for _ in range(1000):
        plot.show_counts(Counts(-1, 1, bell(), bell(), tuple(np.linspace(-1, 1, 16)), 1))
    assert (time.perf_counter() - started) / 1000 < 0.02


@pytest.mark.parametrize(("height", "shown"), [(120, False), (300, True)])
def test_titles_of_the_axes_have_room_or_go(plot, height, shown):
    plot.resize(600, height)
    plot.show_counts(Counts(-1, 1, bell()))  # the words are set anew, which shows them
    axes = [plot.plot.getPlotItem().getAxis(side) for side in ("left", "bottom")]
    assert [axis.label.isVisible() for axis in axes] == [shown, shown]
