"""Lines as a plot can show them: gaps stay gaps, and long series are thinned without losing a peak."""

import math

import numpy as np

from workbench.engine_events import EngineSample
from workbench.events import ReplyDone
from workbench.measure import series


def test_median_and_p95_leave_out_what_was_not_measured():
    values = [None, 0.4, 0.2, 0.3, math.nan, 0.1]
    assert series.median(values) == 0.25
    assert math.isclose(series.percentile(values, 95), 0.385)
    assert series.median([]) is None
    assert series.percentile([None], 95) is None


def test_a_missing_value_breaks_the_line():
    x, y = series.line([(0, 1.0), (1, None), (2, 3.0)])
    assert list(x) == [0, 1, 2]
    assert y[0] == 1 and math.isnan(y[1]) and y[2] == 3


def test_a_long_silence_breaks_the_line_and_a_short_one_does_not():
    _, y = series.line([(0, 1.0), (1, 2.0), (60, 3.0), (61, 4.0)])
    assert [value for value in y if not math.isnan(value)] == [1, 2, 3, 4]
    assert math.isnan(y[2])
    _, joined = series.line([(0, 1.0), (4, 2.0)])
    assert not np.isnan(joined).any()


def test_infinity_is_a_gap_and_nothing_is_nothing():
    _, y = series.line([(0, math.inf), (1, 1.0)])
    assert math.isnan(y[0])
    x, y = series.line([])
    assert len(x) == len(y) == 0


def test_six_hours_are_reduced_and_keep_peaks_and_gaps():
    points = [(at / 2, math.sin(at / 900)) for at in range(43_200)]
    points[20_001] = (points[20_001][0], 9.0)
    points[30_007] = (points[30_007][0], -9.0)
    points[40_003] = (points[40_003][0], None)
    x, y = series.line(points, buckets=600)
    assert len(x) <= 1_900
    assert np.nanmax(y) == 9 and np.nanmin(y) == -9
    assert x[np.nanargmax(y)] == points[20_001][0]
    assert np.isnan(y).sum() == 1 and x[np.isnan(y)][0] == points[40_003][0]
    assert (np.diff(x) >= 0).all()


def test_a_stretch_without_values_stays_empty():
    points = [(at, None if 4_000 <= at < 8_000 else 1.0) for at in range(12_001)]
    x, y = series.line(points, buckets=100)
    inside = (x > 4_150) & (x < 7_850)
    assert inside.any() and np.isnan(y[inside]).all()
    assert not np.isnan(y[x > 8_150]).any()


def test_shares_need_a_whole():
    assert series.share(3, 4) == 0.75
    assert series.share(None, 4) is None
    assert series.share(0, 0) is None


def test_blocks_are_counted_without_the_one_that_the_engine_keeps():
    assert series.blocks_used(EngineSample(0, kv_usage=0.25, kv_blocks=365)) == (91, 364)
    assert series.blocks_used(EngineSample(0, kv_usage=0.25)) is None
    assert series.blocks_used(None) is None


def test_time_between_tokens_of_a_reply():
    assert series.between_tokens_s(ReplyDone("stop", 0.4, 0.4, 2.0, 10, 20, 8.0)) == 0.125
    assert series.between_tokens_s(ReplyDone("stopped", None, None, 2.0, None, None, None)) is None


def test_points_between_gaps_are_found():
    nan = math.nan
    assert list(series.alone(np.array([1.0, nan, 2.0, 3.0, nan, 4.0]))) == [True, False, False, False, False, True]
    assert list(series.alone(np.array([]))) == []


def test_acceptance_by_position_since_the_start():
    assert series.by_position(EngineSample(0, drafts=10, accepted_per_position=(8.0, 5.0))) == (0.8, 0.5)
    assert series.by_position(EngineSample(0, drafts=0, accepted_per_position=(0.0,))) == ()
    assert series.by_position(None) == ()
