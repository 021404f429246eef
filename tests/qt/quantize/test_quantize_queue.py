"""The queue in the window: what is added waits, is worked through, and is shown with KL against size."""

import asyncio

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QDesktopServices

from ui import language, theme
from workbench import jobs, waiting_line
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Failed, Finished, Stage, encode
from workbench.quant_events import QualityMeasured
from workbench.recipe import LAYERED, PRESETS, with_group_size
from workbench.waiting_line import WaitingLine

SIZES = {"layered": 114_000_000, "int8": 180_000_000, "rtn": 112_000_000}


@pytest.fixture
def worker(monkeypatch):
    """Stands in for the worker: "best" fails a check, the rest end after `go`; keeps the recipes' names."""
    asked, go = [], asyncio.Event()

    async def run(folder, on_event, settings, ask=None):
        spec = jobs.spec_of(folder)
        name = spec["recipe"]["name"]
        asked.append(name)
        on_event(Stage("Quantizing", 4))
        on_event(Advanced(1))
        await go.wait()
        on_event(QualityMeasured(name, 600, 0.1, 12.0, 11.0, 0.9))
        if name == "best":
            raise WorkbenchError("The result failed a check: {check}.", "", check="x")
        finished = Finished(spec["output"], SIZES[name])
        (folder / "events.jsonl").write_text(encode(finished) + "\n")
        on_event(finished)

    monkeypatch.setattr(jobs, "run", run)
    run.asked, run.go = asked, go
    return run


@pytest.fixture
def box(page, model):
    page.open(model)
    page.choosing.looks.drop()
    page.queue_box.opener.click()
    return page.queue_box


def added(page, box, *names):
    for name in names:
        page.choosing.take_recipe(PRESETS[name])
        box.redraw()
        box.add.click()


def colour(button) -> str:
    """The colour of a button's icon."""
    drawn = button.icon().pixmap(64, 64).toImage()
    pixels = [drawn.pixelColor(x, y) for x in range(drawn.width()) for y in range(drawn.height())]
    return next(pixel.name() for pixel in pixels if pixel.alpha() == 255).upper()


def states(box):
    return [box.rows.topLevelItem(row).text(2) for row in range(box.rows.topLevelItemCount())]


async def test_recipes_are_added_moved_and_removed(page, box):
    assert box.isVisible() and not box.start.isEnabled() and box.empty.isVisible()
    added(page, box, "layered", "int8", "rtn")
    assert page.queue_box.opener.text() == "Queue · 3" and states(box) == ["waiting"] * 3
    box.choose(box._entries[2])
    box.earlier.click()
    box.earlier.click()
    box.redraw()
    assert [entry.recipe.name for entry in WaitingLine().entries] == ["rtn", "layered", "int8"]
    assert box.chosen.recipe.name == "rtn" and not box.earlier.isEnabled()
    box.remove.click()
    box.redraw()
    assert [entry.recipe.name for entry in WaitingLine().entries] == ["layered", "int8"]


async def test_a_recipe_in_conflict_is_not_added(page, box):
    page.choosing.take_recipe(with_group_size(LAYERED, 128))
    box.redraw()
    assert not box.add.isEnabled() and "solve its conflicts" in box.words.text()
    page.choosing.take_recipe(LAYERED)
    box.redraw()
    assert box.add.isEnabled() and box.words.text() == ""


async def test_it_works_through_and_draws_what_is_done(page, box, worker, until, monkeypatch):
    made = []
    page.made.connect(made.append)
    added(page, box, "layered", "best", "rtn")
    box.start.click()
    await until(lambda: worker.asked)
    box.redraw()
    assert states(box) == ["▸ Quantizing, 25 %", "waiting", "waiting"]
    assert not page.primary.isEnabled() and "queue" in str(page.would_lose())
    assert str(page.statuses()[0].sentence) == "Queue: layered, 2 waiting"
    worker.go.set()
    await until(lambda: not page.queue.going)
    box.redraw()
    assert states(box) == ["✓ done", "✕ failed: The result failed a check: x.", "✓ done"]
    assert box.rows.topLevelItem(0).text(4) == "114 MB" and box.rows.topLevelItem(0).text(5) == "0.10"
    assert [point.name for point in box.plot.points] == ["layered", "rtn"] and box.plot.isVisible()
    assert "rtn: 112 MB, KL 0.10" in box.plot.accessibleDescription()
    assert [path.name for path in made] == ["small-layered", "small-rtn"] and page.would_lose() is None
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile()))
    box.choose(box._entries[0])
    box.report.click()
    await until(lambda: opened)
    assert opened[0].endswith("report.html")
    box.page.click()
    await until(lambda: len(opened) == 2)
    assert opened[1].endswith("queue.html")


async def test_what_is_stopped_waits_again(page, box, worker, until):
    added(page, box, "layered")
    box.start.click()
    await until(lambda: worker.asked)
    box.redraw()
    assert box.start.text() == "Stop" and not box.remove.isEnabled() and colour(box.start) == theme.tokens().text
    box.start.click()
    await until(lambda: not page.queue.going)
    box.redraw()
    assert states(box) == ["waiting"] and box.start.text() == "Start" and page.primary.isEnabled()
    assert colour(box.start) == theme.tokens().ground  # upon the primary button's fill


async def test_a_run_and_the_queue_wait_for_each_other(page, box, worker, until):
    added(page, box, "layered")
    page.start()
    box.redraw()
    assert not box.start.isEnabled() and "has ended" in box.words.text()
    page.cancel()
    await until(lambda: not page.running)
    box.redraw()
    box.start.click()
    await until(lambda: page.queue.line.current is not None)
    page.start()
    assert not page.running, "one worker at a time"
    page.queue.stop()
    await until(lambda: not page.queue.going)


async def test_what_the_command_line_queued_is_shown_and_the_words_follow(page, box, tmp_path, model, qtbot):
    WaitingLine().add(model.folder, PRESETS["rtn"], tmp_path)
    box.close()
    page.queue_box.opener.click()
    assert states(box) == ["waiting"]
    language.choose("zh_CN")
    box.redraw()
    assert states(box) == ["等待中"] and box.start.text() == "启动"
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    assert not box.isVisible()


async def test_a_failed_job_without_a_result_says_why(page, box, worker, until, monkeypatch):
    async def breaks(folder, on_event, settings, ask=None):
        on_event(Failed("It broke."))
        raise WorkbenchError("It broke.")

    monkeypatch.setattr(jobs, "run", breaks)
    added(page, box, "rtn")
    box.start.click()
    await until(lambda: not page.queue.going)
    box.redraw()
    assert states(box) == ["✕ failed: It broke."] and not box.plot.isVisible()


async def test_a_queue_at_work_elsewhere_is_told(page, box, worker, until, told):
    added(page, box, "rtn")
    with waiting_line._alone():  # a terminal works through it
        box.start.click()
        await until(lambda: told)
    box.redraw()
    assert not page.queue.going and states(box) == ["waiting"] and worker.asked == []
