"""Every signal to stop cancels a command's work, which ends what it started before the status is given."""

import asyncio
import os
import signal

import pytest

from workbench.interrupt import INTERRUPTED, run_until_done


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal that does not end the tests where nobody takes it."""
    before = signal.signal(request.param, lambda *_: None)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_cancels_and_what_was_begun_is_ended_first(number):
    ended = []

    async def work():
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    with pytest.raises(SystemExit) as caught:
        run_until_done(work())
    assert caught.value.code == INTERRUPTED and ended == [number]


def test_an_end_without_a_signal_gives_the_result():
    assert run_until_done(asyncio.sleep(0, "done")) == "done"
