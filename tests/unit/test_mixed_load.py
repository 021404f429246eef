"""The mixed load: what it sends, what it counts, and how the two ways are set side by side."""

import time

import pytest
from fake_server import FakeServer, answer

from workbench.engine import separation
from workbench.engine.endpoint import Endpoint
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Stage
from workbench.measure.mixed_load import Comparison, Measured, Mix, measure, one_engine


async def test_long_prompts_come_while_chats_are_answered():
    events = []
    with FakeServer(answer("a", "b", "c", delay_s=0.02), models=["m"]) as server:
        began_s = time.monotonic()
        mix = Mix(chats=2, chat_tokens=3, prompts=3, prompt_words=50, pause_s=0.05)
        found = await measure(Endpoint(server.url, "", "m"), mix, events.append)
        assert 3 * mix.pause_s < found.seconds <= time.monotonic() - began_s
        sent = [each["messages"][0]["content"] for each in server.requests]
        long = [text for text in sent if len(text.split()) > 50]
        assert len(long) == 3 == len(found.prompt_first_s) and len({text[:2] for text in long}) == 3
        assert len(sent) - 3 == len(found.first_s) >= 4, "the chats go on until the last prompt was answered"
        assert all(each["max_tokens"] == 3 for each in server.requests if each["messages"][0]["content"] not in long)
        assert sent.index(long[0]) > 0 and sent.index(long[-1]) < len(sent) + 1
    assert len(found.between_s) == 2 * len(found.first_s) and found.failed == 0
    assert all(0 < each < 1 for each in found.between_s + found.first_s)
    assert found.tokens == 3 * len(sent)
    assert isinstance(events[0], Stage) and [each.done for each in events[1:] if isinstance(each, Advanced)] == [
        1,
        2,
        3,
    ]


async def test_failed_requests_are_counted_and_end_nothing():
    with FakeServer(models=["m"]) as server:
        server.status, server.body = 500, '{"error": {"message": "gone"}}'
        found = await measure(Endpoint(server.url, "", "m"), Mix(chats=1, prompts=2, pause_s=0.02), lambda event: None)
    assert found.failed == 3 and found.first_s == [] and found.tokens_per_s is None


async def test_an_answer_without_text_has_no_first_token_and_counts_as_failed():
    with FakeServer(answer(), models=["m"]) as server:
        found = await measure(Endpoint(server.url, "", "m"), Mix(chats=1, prompts=1, pause_s=0.02), lambda event: None)
    assert found.failed == 2 and found.first_s == found.prompt_first_s == []


def test_a_speed_up_below_one_is_shown_as_such_and_missing_as_a_dash():
    one = Measured([0.2, 0.4], [0.1] * 19 + [0.9], [], tokens=100, seconds=10)
    apart = Measured([0.4, 0.8], [0.1] * 20, [], tokens=50, seconds=10, failed=1)
    rows = {row.name: row for row in Comparison(Mix(), one, apart).rows()}
    assert rows["first_median_s"].speedup == pytest.approx(0.5) and rows["first_median_s"].texts[2] == "0.50×"
    assert rows["between_p95_s"].speedup > 1 and rows["between_median_s"].speedup == pytest.approx(1)
    assert rows["between_longest_s"].speedup == pytest.approx(9)
    assert rows["tokens_per_s"].speedup == pytest.approx(0.5)
    assert rows["prompt_first_median_s"].texts == ("–", "–", "–")
    assert rows["failed"].texts == ("0", "1", "–")
    assert "within 0.14 s in one engine" in str(Comparison(Mix(), one, apart).verdict)


def test_running_engines_have_nothing_to_compare_with():
    with pytest.raises(WorkbenchError, match="cannot be compared"):
        one_engine(separation.of_urls(("http://a:1",), ("http://b:1",)))
