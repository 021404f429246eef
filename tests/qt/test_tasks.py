import asyncio

from ui.page import Page
from workbench.errors import WorkbenchError


async def test_an_error_is_told_once_and_in_its_own_words(tasks, told, until):
    async def fail():
        raise WorkbenchError("{name} is absent.", "Get it.", name="x")

    tasks.start(fail())
    await until(lambda: told)
    assert len(told) == 1
    assert (str(told[0].sentence), str(told[0].hint), told[0].details) == ("x is absent.", "Get it.", "")


async def test_an_unexpected_error_comes_with_its_traceback(tasks, told, until):
    async def fail():
        raise ZeroDivisionError("by {zero}")

    tasks.start(fail())
    await until(lambda: told)
    assert "ZeroDivisionError: by {zero}" in str(told[0].sentence)
    assert "Traceback" in told[0].details


async def test_cancelling_is_no_error(tasks, told, until):
    task = tasks.start(asyncio.sleep(60))
    task.cancel()
    await until(lambda: len(tasks) == 0)
    assert told == []


async def test_stop_all_waits_for_what_ends_slowly_and_for_what_it_starts(tasks):
    ended = []

    async def later():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("later")

    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            tasks.start(later())
            await asyncio.sleep(0.05)
            ended.append("slow")

    tasks.start(slow())
    await asyncio.sleep(0)
    await tasks.stop_all()
    assert sorted(ended) in (["slow"], ["later", "slow"])
    assert len(tasks) == 0


class Counter(Page):
    def __init__(self, *given):
        super().__init__(*given)
        self.drawn = 0
        self.told_running = []

    def redraw(self):
        self.drawn += 1

    def set_running(self, running):
        self.told_running.append(running)


async def test_a_page_redraws_per_frame_and_only_when_visible(settings, tasks, notices, qtbot, until):
    page = Counter(settings, tasks, notices)
    qtbot.addWidget(page)
    for _ in range(100):
        page.touch()
    await asyncio.sleep(0.1)
    assert page.drawn == 0
    page.show()
    await until(lambda: page.drawn == 1)
    for _ in range(100):
        page.touch()
    await asyncio.sleep(0.15)
    assert page.drawn == 2


async def test_a_page_owns_its_work(settings, tasks, notices, qtbot, until, told):
    page = Counter(settings, tasks, notices)
    qtbot.addWidget(page)
    page.begin(asyncio.sleep(60))
    page.begin(asyncio.sleep(60))
    assert page.told_running[-1] is True
    page.cancel()
    await until(lambda: page.told_running[-1] is False)
    assert page.running == set() and told == []
