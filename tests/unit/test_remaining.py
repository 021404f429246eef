"""What is expected of the next answer, and the priority that follows from it."""

import pytest
from fake_server import FakeServer, answer
from priority import percentile

from workbench.chat.asking import ask
from workbench.chat.conversation import Conversation, Turn
from workbench.chat.remaining import RECENT, UNLIMITED, expected_tokens, priority
from workbench.engine.endpoint import Endpoint
from workbench.engine.sampling import Sampling
from workbench.events import ReplyDone
from workbench.runs import Reply


def done(tokens: int | None, reason: str = "stop") -> ReplyDone:
    return ReplyDone(reason, None, None, 1.0, 10, tokens, None)


def said(tokens: int) -> Reply:
    return Reply("m", state="done", done=done(tokens))


@pytest.mark.parametrize(
    ("limit", "earlier", "expected"),
    [
        (512, [], 512),  # nothing is known but the limit
        (None, [], UNLIMITED),
        (512, [done(10), done(30)], 20),
        (16, [done(100)], 16),  # it cannot take more than it may
        (512, [done(100, "length")], 512),  # cut off by an earlier, lower limit: it would have gone on
        (512, [done(100, "length"), done(100)], 306),
        (None, [done(9000, "length")], UNLIMITED),
        (512, [done(3, "stopped")], 512),  # the user's end says nothing of the model's
        (512, [done(None)], 512),  # a server that does not count
        (512, [done(1)] + [done(50)] * RECENT, 50),  # only the last ones count
    ],
)
def test_the_tokens_to_expect(limit, earlier, expected):
    assert expected_tokens(limit, earlier) == expected


def test_a_conversation_of_short_answers_goes_before_one_of_long_answers():
    short = Conversation([Turn("yes?", replies={"original": said(4), "quantized": said(300)})])
    long = Conversation([Turn("tell me", replies={"original": said(400)})])
    assert priority(512, short, "original") == 4 < priority(512, long, "original") == 400
    assert priority(512, short, "quantized") == 300, "each side has its own lengths"
    assert priority(512, Conversation(), "original") == 512
    assert priority(512, Conversation([Turn("x", replies={"original": Reply("m")})]), "original") == 512


async def test_only_engines_that_schedule_by_priority_are_sent_one():
    """Others answer a priority with 400."""
    with FakeServer(answer("a")) as one, FakeServer(answer("b")) as two:
        servers = {"original": one, "quantized": two}
        turn = Turn("x", replies={side: Reply("m") for side in servers})
        asked = {side: [{"role": "user", "content": "x"}] for side in servers}
        ends = {side: Endpoint(server.url, model="fake") for side, server in servers.items()}
        await ask(
            turn, asked, ends.get, Sampling(), lambda side, event: turn.replies[side].apply(event), {"original": 7}
        )
    assert one.requests[0]["priority"] == 7
    assert "priority" not in two.requests[0]


def test_a_percentile_of_the_bench_was_really_measured():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 201)], 0.99) == 198.0
    assert percentile([7.0], 0.99) == percentile([7.0, 1.0], 0.99) == 7.0
