import pytest

from workbench import figures


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (float("nan"), "–"), (0, "0.00"), (0.41, "0.41"), (0.4149, "0.41"), (6.2, "6.20"), (62, "62.0"),
        (99.96, "100.0"), (212, "212"), (1234.5, "1,234"), (0.0019, "0.0019"), (0.00019, "1.9e-4"),
        (-0.41, "-0.41"), (0.01, "0.010"), (0.0124, "0.012"), (0.0996, "0.100"),
    ],
)  # fmt: skip
def test_number(value, shown):
    assert figures.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_600, "1.0 MB"), (269_060_552, "269 MB"),
        (1_234_567_890, "1.2 GB"), (99_960_000_000, "100 GB"), (15_200_000_000_000, "15.2 TB"),
    ],
)  # fmt: skip
def test_bytes(value, shown):
    assert figures.bytes_of(value) == shown


def test_used_of_total_share_one_unit():
    assert figures.of_bytes(91e9, 139e9) == "91.0 / 139 GB"
    assert figures.of_bytes(0.5e9, 16.4e9) == "0.5 / 16.4 GB"
    assert figures.of_bytes(None, 16.4e9) == "– / 16.4 GB"


def test_more_than_leaves_the_unit_out():
    assert figures.more_than(15_200_000_000, 11_600_000_000) == "15.2 > 11.6"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (30, "30"), (49152, "49,152"), (134_515_008, "135 M"), (7_615_616_512, "7.62 B")],
)
def test_count(value, shown):
    assert figures.count(value) == shown


@pytest.mark.parametrize(
    ("share", "digits", "shown"),
    [(None, 0, "–"), (0.63, 0, "63 %"), (0.0002, 2, "0.02 %"), (0, 0, "0 %"), (1, 0, "100 %")],
)
def test_percent(share, digits, shown):
    assert figures.percent(share, digits) == shown


def test_small_shares_are_not_shown_as_nothing():
    assert figures.percent(0.0002) == "0.02 %"


def test_clock():
    assert [figures.clock(each) for each in (None, 0, 41.9, 190, 3725)] == ["–", "00:00", "00:41", "03:10", "1:02:05"]


def test_ratio_and_decibel():
    assert figures.ratio(1.7249) == "1.72×"
    assert figures.ratio(None) == figures.decibel(None) == "–"
    assert figures.decibel(27.31) == "27.3 dB"


def test_a_brief_duration_has_its_unit():
    shown = [figures.brief(value) for value in (None, 0, 3.5e-5, 0.001, 0.0349, 0.9999, 1.7483)]
    assert shown == ["–", "< 1 ms", "< 1 ms", "1 ms", "35 ms", "1.00 s", "1.75 s"]


def test_watts():
    shown = [figures.watts(used, limit) for used, limit in ((None, 700), (540.4, None), (540.4, 700))]
    assert shown == ["–", "540 W", "540 / 700 W"]
