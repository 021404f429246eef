"""The load test: what it sends, what its figures are, and what is left of it when the server is not."""

import asyncio
import time

import pytest
from fake_server import DROP, FakeServer, answer, delta

from workbench.engine.endpoint import Endpoint
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Note, ReplyDone, Stage
from workbench.measure import load as loads
from workbench.measure.load import Level, Load, Plan, between_s, measure
from workbench.measure.passages import Passages

PAGE = 'vllm:num_requests_running{engine="0"} 0.0\n'
SMALL = Plan(at=(2,), requests=4, prompt_tokens=20, answer_tokens=5)


def done(ttft_s=0.1, total_s=1.0, tokens=10, prompt_tokens=256, tokens_per_s=10.0):
    return ReplyDone("length", ttft_s, ttft_s, total_s, prompt_tokens, tokens, tokens_per_s)


def level(at, tokens_per_s):
    return Level(at, 1, 1, [done(tokens=tokens_per_s)], seconds=1.0)


def contents(server):
    return [each["messages"][0]["content"] for each in server.requests]


async def until(is_so):
    for _ in range(500):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("5 s have passed")


async def test_the_figures_are_those_of_the_servers_delays():
    events = []
    with FakeServer(answer("a", "b", "c", "d", "e", delay_s=0.04), models=["m"], metrics=PAGE) as server:
        made = Load(Plan(at=(4, 1, 1), requests=3, prompt_tokens=100, answer_tokens=5))
        await measure(Endpoint(server.url), made, events.append)
        first = server.requests[0]
    one, four = made.levels
    assert (one.at, one.requests, four.at, four.requests) == (1, 3, 4, 8) and made.lost is None
    assert len(server.requests) == 1 + 3 + 8, "the warm-up is outside"
    for each in made.levels:
        assert len(each.done) == each.requests and each.failed == 0
        # The role comes after 40 ms, the first text after 80, then one every 40.
        assert 0.08 <= each.first_s(50) <= each.first_s(95) < 1
        assert 0.02 < each.token_s(50) <= each.token_s(95) < 0.4
        assert each.tokens_per_s == pytest.approx(5 * each.requests / each.seconds)
        assert each.requests_per_s == pytest.approx(each.requests / each.seconds)
        assert (each.prompt_tokens, each.answer_tokens) == (11, 5)
    assert one.seconds >= 3 * 0.24 and four.tokens_per_s > one.tokens_per_s
    assert (first["max_tokens"], first["temperature"], first["ignore_eos"]) == (5, 0.0, True)
    assert events[0] == Stage("Load test", 11) and Advanced(11) in events
    assert [event.values["at"] for event in events if isinstance(event, Note)] == [1, 4]


async def test_so_many_run_at_once_and_no_more():
    made, others = Load(Plan((3,), 9)), []

    def take(event):
        if isinstance(event, Advanced):
            others.append(made.levels[0].sent - len(made.levels[0].done))

    with FakeServer(answer("a", delay_s=0.05), models=["m"]) as server:
        await measure(Endpoint(server.url), made, take)
    assert others == [2] * 7 + [1, 0], "as one ends two others run, until the last are under way"


async def test_prompts_begin_differently_and_take_the_length_that_the_server_counts():
    with FakeServer(answer("a"), models=["m"]) as server:
        for _ in range(2):
            await measure(Endpoint(server.url), Load(SMALL), lambda event: None)
        sent = contents(server)
    assert len({text.split(":")[0] for text in sent}) == len(sent) == 10
    warmup, *rest = (len(text.split(":", 1)[1].split()) for text in sent[:5])
    # 20 tokens were wanted and 11 counted for the warm-up.
    assert warmup == 15 and set(rest) == {round(15 * 20 / 11)}


def test_a_passage_goes_on_where_the_one_before_ended():
    passages = Passages(40)
    first, second = next(passages), next(passages)
    assert len(first.split()) == 32 and first.split()[2:] != second.split()[2:]
    passages.fit(None)
    assert len(next(passages).split()) == 32


async def test_other_servers_get_no_field_of_vllm():
    with FakeServer(answer("a"), models=["m"]) as server:
        server.strict = True
        made = Load(SMALL)
        await measure(Endpoint(server.url), made, lambda event: None)
    assert made.server.version is None and len(made.levels[0].done) == 4


async def test_what_the_server_does_not_count_has_no_figure():
    with FakeServer([(0, delta("a")), (0.02, delta("b", "stop")), (0, "data: [DONE]\n\n")], models=["m"]) as server:
        made = Load(SMALL)
        await measure(Endpoint(server.url), made, lambda event: None)
    found = made.levels[0]
    assert found.first_s(50) is not None and found.requests_per_s > 0
    assert found.tokens_per_s is None and found.token_s(50) is None and found.prompt_tokens is None
    assert made.knee is None and made.verdict is None


async def test_failed_requests_are_counted_with_the_first_reason():
    with FakeServer(answer("a", "b"), models=["m"]) as server:
        made = Load(Plan((1, 2), 4))

        def take(event):
            match event:
                case Advanced(2):
                    server.status, server.body = 500, '{"error": {"message": "no room"}}'
                case Advanced(4):
                    server.status = 429
                case Note():
                    server.status = 200

        await measure(Endpoint(server.url), made, take)
    one, two = made.levels
    assert (len(one.done), one.failed, two.failed, len(two.done)) == (2, 2, 0, 4)
    assert str(one.reason) == "The engine failed: no room" and made.lost is None
    assert one.tokens_per_s == pytest.approx(4 / one.seconds)


async def test_an_answer_that_breaks_off_is_no_answer():
    with FakeServer(answer("a"), models=["m"]) as server:
        made = Load(SMALL)

        def take(event):
            if event == Advanced(1):
                server.script = [(0, delta("a")), (0.01, DROP)]

        await measure(Endpoint(server.url), made, take)
    assert made.levels[0].failed >= 2 and "broke off" in str(made.levels[0].reason)


async def test_a_warm_up_that_fails_is_an_error_at_once():
    with FakeServer(models=["m"]) as server:
        server.status, server.body = 400, '{"error": {"message": "maximum context length is 64"}}'
        made = Load(SMALL)
        with pytest.raises(WorkbenchError, match="does not fit the model's context"):
            await measure(Endpoint(server.url), made, lambda event: None)
        assert len(server.requests) == 1 and not made.levels
    with pytest.raises(WorkbenchError, match="Nothing listens"):
        await measure(Endpoint(server.url), Load(SMALL), lambda event: None)


async def test_a_lost_server_leaves_what_was_measured():
    server = FakeServer(answer("a", "b", delay_s=0.02), models=["m"]).__enter__()
    made = Load(Plan((1, 2, 4), 4))

    def take(event):
        if event == Advanced(6):
            server.__exit__()

    began_s = time.monotonic()
    await measure(Endpoint(server.url), made, take)
    assert time.monotonic() - began_s < 5
    whole, broken = made.levels
    assert "Nothing listens" in str(made.lost) and len(whole.done) == 4 and whole.tokens_per_s
    assert 2 <= len(broken.done) < 4 and broken.failed == broken.sent - len(broken.done) > 0 and broken.reason
    assert broken.seconds is None and broken.tokens_per_s is None and broken.first_s(50) is not None


async def test_a_server_that_falls_silent_is_lost_too(monkeypatch):
    async def until_lost(endpoint):
        await asyncio.sleep(0.3)
        raise WorkbenchError("The server at {url} does not answer any more.", url=endpoint.root)

    monkeypatch.setattr(loads.remote, "until_lost", until_lost)
    with FakeServer(answer("a"), models=["m"]) as server:
        made = Load(SMALL)

        def take(event):
            if event == Advanced(2):
                server.script = [(60, delta("late"))]

        await measure(Endpoint(server.url), made, take)
    found = made.levels[0]
    assert len(found.done) + found.failed == found.sent == 4 and found.failed in (1, 2)
    assert "does not answer any more" in str(found.reason) and str(made.lost) == str(found.reason)


async def test_cancelling_ends_it_at_once_and_keeps_the_levels():
    with FakeServer(answer("a"), models=["m"]) as server:
        made = Load(Plan((1, 8), 2))

        def take(event):
            if isinstance(event, Note):
                server.script = [(60, delta("late"))]

        running = asyncio.ensure_future(measure(Endpoint(server.url), made, take))
        await until(lambda: len(server.requests) == 1 + 2 + 8)
        began_s = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - began_s < 1
        await until(lambda: len(server.disconnected_s) == 8)
    assert made.lost is None and len(made.levels[0].done) == 2
    assert (made.levels[1].failed, made.levels[1].tokens_per_s) == (0, None)


def test_the_time_of_a_token_is_after_the_first():
    assert between_s(done(0.1, 1.0, 10)) == pytest.approx(0.1)
    assert between_s(done(tokens=1)) is None and between_s(done(tokens=None)) is None
    assert between_s(done(ttft_s=None)) is None
    assert between_s(done(tokens_per_s=None)) is None, "its chunks came at once"


def test_one_answer_that_was_not_counted_takes_the_levels_speed_away():
    assert Level(2, 2, 2, [done(), done(tokens=None)], seconds=2.0).tokens_per_s is None
    assert Level(2, 2, 2, [done(tokens=4), done(tokens=6)], seconds=2.0).tokens_per_s == 5


def test_percentiles_are_over_the_requests():
    found = Level(1, 21, 21, [done(ttft_s=at / 100) for at in range(21)], seconds=1.0)
    assert found.first_s(50) == pytest.approx(0.10) and found.first_s(95) == pytest.approx(0.19)


@pytest.mark.parametrize(
    ("speeds", "knee", "said"),
    [
        ((100, 190, 208, 210), 2, "The knee is at 2 at once: the last"),
        ((100, 105, 200, 201), 3, "The knee is at 3 at once: the last"),
        ((100, 110), 2, "the knee is not reached"),
        ((100, 109, 118), 1, "the first level"),
        ((100, 90), 1, "the first level"),
    ],
)
def test_the_knee_is_the_last_level_that_grew_by_a_tenth(speeds, knee, said):
    made = Load(Plan(), levels=[level(at, speed) for at, speed in enumerate(speeds, 1)])
    assert made.knee.at == knee and said in str(made.verdict)
    made.levels.append(Level(9, 18))
    assert made.knee.at == knee, "a level without figures says nothing"


def test_numbers_below_one_are_refused():
    for wrong in ({"at": ()}, {"at": (0, 1)}, {"requests": 0}, {"answer_tokens": 0}):
        with pytest.raises(WorkbenchError, match="from 1 up"):
            Plan(**wrong)
