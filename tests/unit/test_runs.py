"""Engines and replies as the sum of their events."""

import pytest

from workbench.engine.metrics import Rates
from workbench.engine_events import EngineLog, EnginePhase, EngineReady, EngineSample, EngineStopped
from workbench.events import Failed, ReplyDone, ReplyFailed, ReplyStarted, ReplyText
from workbench.runs import LOG_LINES, POINTS, EngineRun, Reply


def test_an_engine_starts_works_and_stops():
    run = EngineRun()
    assert run.state == "stopped" and run.speculates is None
    run.apply(EnginePhase("starting", 1.0))
    run.apply(EnginePhase("weights", 2.5))
    assert run.state == "starting" and [phase.at_s for phase in run.phases] == [1.0, 2.5]
    run.apply(EngineReady("http://127.0.0.1:1", "k", "m", 7, 60.0))
    assert run.state == "ready" and run.ready.model == "m"
    run.apply(EngineStopped())
    assert run.state == "stopped"


def test_a_failure_stays_a_failure():
    run = EngineRun()
    run.apply(EnginePhase("starting", 1.0))
    run.apply(Failed("No memory."))
    run.apply(EngineStopped())
    assert run.state == "failed" and run.error.message == "No memory."


def test_the_log_is_bounded():
    run = EngineRun()
    for n in range(LOG_LINES + 10):
        run.apply(EngineLog(str(n)))
    assert len(run.log) == LOG_LINES and run.log[-1] == str(LOG_LINES + 9)


def sample(at_s, generated, drafts, drafted, accepted, **more) -> EngineSample:
    return EngineSample(
        at_s,
        generated_tokens=generated,
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        **more,
    )


def test_lines_have_gaps_and_no_spike_over_a_restart():
    """H42 c, and a poll that got no answer."""
    run = EngineRun()
    for event in (
        sample(0.0, 100.0, 10.0, 40.0, 20.0, kv_usage=0.5, accepted_per_position=(9.0,)),
        sample(1.0, 130.0, 20.0, 80.0, 50.0, kv_usage=0.6, accepted_per_position=(18.0,)),
        sample(2.0, 130.0, 20.0, 80.0, 50.0, kv_usage=0.6, accepted_per_position=(18.0,)),
        EngineSample(3.0),
        sample(4.0, 0.0, 0.0, 0.0, 0.0),
        sample(5.0, 7.0, 1.0, 4.0, 4.0),
    ):
        run.apply(event)
    assert list(run.series.tokens_per_s) == [None, 30.0, 0.0, None, None, 7.0]
    assert list(run.series.acceptance) == [None, 0.75, None, None, None, 1.0]
    assert list(run.series.mean_accepted) == [None, 4.0, None, None, None, 5.0]
    assert list(run.series.kv_usage) == [0.5, 0.6, 0.6, None, None, None]
    assert run.acceptance_by_position == (0.9,)
    assert run.speculates is True


def test_a_restart_without_a_missed_poll_makes_no_spike():
    run = EngineRun()
    run.apply(sample(0.0, 100.0, 10.0, 40.0, 20.0))
    run.apply(sample(1.0, 3.0, 1.0, 4.0, 2.0))
    assert run.rates == Rates()


def test_the_warm_up_is_in_no_figure():
    run = EngineRun()
    warmup = sample(0.0, 8.0, 2.0, 8.0, 1.0, ttft=(3.5, 1.0), accepted_per_position=(1.0, 0.0), kv_blocks=9)
    for event in (
        EnginePhase("warmup", 0.0),
        warmup,
        EngineReady("http://127.0.0.1:1", "k", "m", 7, 60.0, 3.6),
        warmup,
    ):
        run.apply(event)
    assert len(run.series.at_s) == 1 and run.series.ttft_s[0] is None
    assert (run.sample.generated_tokens, run.sample.drafts, run.sample.accepted_tokens) == (0.0, 0.0, 0.0)
    assert run.sample.ttft == (0.0, 0.0) and run.sample.accepted_per_position == (0.0, 0.0)
    assert run.sample.kv_blocks == 9
    run.apply(sample(1.0, 38.0, 12.0, 48.0, 31.0, ttft=(3.9, 2.0), accepted_per_position=(11.0, 6.0), kv_blocks=9))
    assert (run.sample.generated_tokens, run.sample.drafts, run.sample.accepted_tokens) == (30.0, 10.0, 30.0)
    assert run.sample.accepted_per_position == (10.0, 6.0)
    assert run.series.tokens_per_s[-1] == 30.0 and run.series.ttft_s[-1] == pytest.approx(0.4)
    run.apply(EngineSample(2.0))
    assert run.sample == EngineSample(2.0)
    run.apply(sample(3.0, 3.0, 1.0, 4.0, 2.0))
    assert run.sample.generated_tokens == 3.0, "a restart: what it counted before is gone"
    run.apply(sample(4.0, 20.0, 3.0, 12.0, 9.0))
    assert run.sample.generated_tokens == 20.0


def test_lines_are_bounded_and_equally_long():
    run = EngineRun()
    for n in range(POINTS + 5):
        run.apply(EngineSample(float(n)))
    lengths = {len(getattr(run.series, name)) for name in run.series.__slots__}
    assert lengths == {POINTS}
    assert run.speculates is None


def test_what_happened_during_missed_polls_is_counted_after_them():
    run = EngineRun()
    for event in (sample(0.0, 100.0, 10.0, 40.0, 20.0), EngineSample(1.0), EngineSample(2.0)):
        run.apply(event)
        assert run.speculates is True
    run.apply(sample(4.0, 140.0, 20.0, 80.0, 50.0))
    assert list(run.series.tokens_per_s) == [None, None, None, 10.0]
    assert list(run.series.acceptance) == [None, None, None, 0.75]


DONE = ReplyDone("stop", 0.4, 0.4, 2.0, 11, 30, 18.0)


def test_a_reply_grows_and_ends():
    reply = Reply("m")
    assert reply.is_open and reply.text == ""
    for event in (ReplyStarted(0.0), ReplyText("Hm", 0.1, True), ReplyText("Good", 0.2), ReplyText(" day", 0.3)):
        reply.apply(event)
    assert (reply.state, reply.text, reply.reasoning) == ("streaming", "Good day", "Hm")
    reply.apply(ReplyText("!", 0.4))
    assert reply.text == "Good day!"
    reply.apply(DONE)
    assert (reply.state, reply.done, reply.is_open) == ("done", DONE, False)


def test_stopped_and_broken_replies_keep_their_text():
    stopped, broken = Reply(), Reply()
    for reply in (stopped, broken):
        reply.apply(ReplyText("Once", 0.1))
    stopped.apply(ReplyDone("stopped", 0.1, 0.1, 1.0, None, None, None))
    broken.apply(ReplyFailed("Broke."))
    assert (stopped.state, stopped.text) == ("stopped", "Once")
    assert (broken.state, broken.text, broken.error.message) == ("failed", "Once", "Broke.")
