"""When an engine counts as dead: two polls in a row, whatever came before."""

import httpx
import pytest

from workbench.engine import health

GONE, BUSY = httpx.ConnectError("refused"), httpx.ReadTimeout("busy")


@pytest.mark.parametrize(
    ("story", "there"),
    [
        ([200, 503, 200, 503, 503], True),
        ([GONE, 200, GONE, GONE], False),
        ([503, BUSY, 503, GONE], False),
        ([429, 500, 503, 503], True),
    ],
)
async def test_only_two_polls_in_a_row_are_a_death(monkeypatch, story, there):
    monkeypatch.setattr(health, "PERIOD_S", 0)
    left = list(story)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/health"
        if isinstance(told := left.pop(0), Exception):
            raise told
        return httpx.Response(told)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://engine") as client:
        assert await health.death(client) is there
    assert left == []
