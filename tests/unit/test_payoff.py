"""When drafting cannot have paid, by the engine's own counters."""

from pathlib import Path

import pytest

from workbench.engine import payoff
from workbench.engine.payoff_note import PayoffNote
from workbench.engine.profile import Profile, Speculation
from workbench.engine_events import EnginePhase, EngineReady, EngineSample


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


def told_by(profile, *events):
    """What the note adds to an engine's events."""
    seen = []
    note = PayoffNote(profile, seen.append)
    for event in events:
        note(event)
    return [event for event in seen if event not in events]


READY = EngineReady("http://127.0.0.1:1", "k", "m", 1, 3.0, 1.0)


def test_a_terminal_hears_of_a_loss_once_and_not_of_the_warm_up():
    profile = Profile(Path("m"), speculation=Speculation())
    warmup = sample(300, 1200, 0)
    story = [EnginePhase("warmup", 0.0), warmup, READY, sample(301, 1204, 1), sample(350, 1400, 1)]
    assert told_by(profile, *story) == []
    (note,) = told_by(profile, *story, sample(700, 2800, 5), sample(800, 3200, 6))
    assert note.level == "warning" and "not helping" in note.message and note.values["share"] == "0.3 %"


def test_an_engine_that_does_not_draft_is_not_judged():
    assert told_by(Profile(Path("m")), READY, sample(400, 1600, 0)) == []


def test_a_draft_model_costs_what_it_reads(write_tiny, tmp_path):
    """Its own size: every drafted token is a step of the target, so nearly all must be accepted."""
    target, draft = write_tiny(tmp_path / "target"), write_tiny(tmp_path / "draft")
    chosen = Speculation(method="draft_model", draft=draft, tokens=2)
    half = sample(400, 800, 400)
    assert told_by(Profile(target, speculation=chosen), READY, half)
    assert not told_by(Profile(target, speculation=Speculation(tokens=2)), READY, half)


def test_a_folder_that_went_away_does_not_end_the_engine_that_has_read_it(tmp_path):
    chosen = Speculation(method="draft_model", draft=tmp_path / "gone", tokens=2)
    assert told_by(Profile(tmp_path / "gone too", speculation=chosen), READY, sample(400, 800, 780)) == []
