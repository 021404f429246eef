"""When drafting cannot have paid, by the engine's own counters."""

import pytest

from workbench.engine import payoff
from workbench.events import EngineSample


def sample(drafts, drafted, accepted):
    return EngineSample(0.0, drafts=drafts, draft_tokens=drafted, accepted_tokens=accepted)


def test_the_expected_gain_is_leviathans():
    assert payoff.expected(0.0, 4, 1.0) == 5
    assert payoff.expected(0.1, 4, 0.8) == pytest.approx((1 + 0.8 + 0.64 + 0.512 + 0.4096) / 1.4)
    assert payoff.expected(1.0, 4) < 1, "a draft as large as its target"


def test_h25_hardly_anything_accepted():
    told = payoff.loss(sample(400, 1200, 15))
    assert told and told.values["share"] == "1.2 %"
    assert "not helping" in str(told)


def test_a_good_draft_is_left_alone():
    assert payoff.loss(sample(400, 1600, 900), cost=0.1) is None
    assert payoff.measured(sample(400, 1600, 900), 0.1) == pytest.approx(3.25 / 1.445)


def test_an_expensive_draft_needs_more():
    assert payoff.loss(sample(400, 1600, 500), cost=0.1) is None
    assert payoff.loss(sample(400, 1600, 500), cost=0.6) is not None


@pytest.mark.parametrize("counted", [None, sample(None, None, None), sample(0, 0, 0), sample(99, 400, 0)])
def test_nothing_is_said_before_enough_was_drafted(counted):
    assert payoff.measured(counted) is None and payoff.loss(counted) is None
