"""Speed from when chunks arrived."""

import pytest

from workbench.measure.timing import TokenTimes


def times(*texts_s: float, counted: bool = False) -> TokenTimes:
    """A stream of five tokens a chunk."""
    made = TokenTimes(0.0)
    for index, at_s in enumerate(texts_s, 1):
        made.text(at_s, reasoning=False)
        if counted:
            made.count(at_s, 5 * index)
    return made


@pytest.mark.parametrize("counted", [False, True])
def test_chunks_that_waited_to_be_read_tell_no_speed(counted):
    """Seen on a busy machine: 20 tokens came at once after the first 0.95 s and were told as 57,814 tokens/s."""
    assert times(0.95, 0.9501, 0.9502, 0.9503, counted=counted).tokens_per_s(20) is None
    assert times(0.95, 0.9526, 0.9552, 0.9578, counted=counted).tokens_per_s(20) == pytest.approx(5 / 0.0026)
