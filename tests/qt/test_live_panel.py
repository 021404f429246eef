"""The live panel: figures of both engines from their events, dashes and gaps where there is nothing."""

import gc
import math
import tracemalloc

import numpy as np
import pytest
from PySide6.QtWidgets import QLabel

from ui import language
from ui.engines import Engines
from ui.live_panel import LivePanel
from ui.plots.series import RequestPlot, TimePlot
from workbench.events import EngineSample, ReplyDone


@pytest.fixture
def engines(settings, tasks):
    return Engines(settings, tasks)


@pytest.fixture
def panel(engines, tasks, qtbot):
    made = LivePanel(engines, tasks)
    qtbot.addWidget(made)
    made.resize(332, 1200)
    made.show()
    return made


def samples(engines, side, *events):
    for event in events:
        engines.run(side).apply(event)
    engines.sampled.emit(side)


def drafted(at_s, drafts, accepted, **more):
    return EngineSample(
        at_s, drafts=drafts, draft_tokens=drafts * 4, accepted_tokens=accepted, kv_usage=0.37, kv_blocks=101,
        kv_block_size=16, accepted_per_position=(accepted * 0.6, accepted * 0.4), generated_tokens=at_s * 10,
        prompt_tokens=at_s * 30, **more,
    )  # fmt: skip


def text(panel, fold, side):
    lines = getattr(panel, fold).lines
    return lines[side].text if side in lines else ""


async def test_before_any_engine_it_says_how_it_fills(panel):
    panel.redraw()
    assert panel.empty.isVisible()
    assert not any(section.isVisible() for section in panel.sections)


async def test_figures_of_one_engine(panel, engines, until):
    samples(engines, "quantized", drafted(1, 10, 20), drafted(2, 20, 50))
    await until(lambda: "75 %" in text(panel, "acceptance", "quantized"))
    assert not panel.empty.isVisible()
    assert "4.0 tokens a step" in text(panel, "acceptance", "quantized")
    assert "62 % since the start" in text(panel, "acceptance", "quantized")
    assert "37.0 %" in text(panel, "cache", "quantized")
    assert "37 of 100 blocks of 16 tokens" in text(panel, "cache", "quantized")
    assert panel.cache.bars.rows[0].parts == (("kv", 0.37),)
    assert "10.0 tok/s" in text(panel, "speed", "quantized")
    assert "prefill 30.0 tok/s" in text(panel, "speed", "quantized")
    assert panel.speed.phases.rows[0].parts == (("prefill", 0.75), ("decode", 0.25))
    assert list(panel.acceptance.positions.shares) == ["quantized"]
    assert "original" not in panel.cache.lines, "an engine that never ran has no line"


async def test_speculation_off_says_off_and_nothing_drafted_is_a_dash(panel, engines):
    samples(engines, "original", EngineSample(1, kv_usage=0.0), EngineSample(2, kv_usage=0.0))
    samples(engines, "quantized", drafted(1, 10, 20), drafted(2, 10, 20))
    panel.redraw()
    assert text(panel, "acceptance", "original").startswith("off")
    assert text(panel, "acceptance", "quantized").startswith("–")
    assert "nan" not in text(panel, "acceptance", "quantized").lower()
    assert list(panel.acceptance.plot.curves["original"].getOriginalDataset()[0] or ()) == []


async def test_a_restart_and_a_poll_without_answer_are_gaps(panel, engines):
    samples(engines, "original", *(EngineSample(at, generated_tokens=value) for at, value in enumerate((0, 10, 20))))
    samples(
        engines, "original", EngineSample(3), EngineSample(4, generated_tokens=5), EngineSample(5, generated_tokens=9)
    )
    panel.redraw()
    _, y = panel.speed.plot.curves["original"].getOriginalDataset()
    assert [None if math.isnan(value) else value for value in y] == [None, 10, 10, None, None, 4]


async def test_each_reply_is_a_point_with_median_and_p95(panel, engines):
    for ttft in (0.2, 0.4, 0.6):
        panel.add_reply("original", ReplyDone("stop", ttft, ttft, 2.0, 10, 20, 8.0))
    panel.add_reply("quantized", ReplyDone("stopped", None, None, 1.0, None, None, None))
    panel.redraw()
    assert text(panel, "first", "original").startswith("0.40 s median")
    assert "p95 0.58 s · 3 requests" in text(panel, "first", "original")
    assert text(panel, "between", "original").startswith("125 ms")
    assert text(panel, "first", "quantized") == "–"
    x, y = panel.first.plot.points["original"].getData()
    assert list(x) == [1, 2, 3] and list(y) == [0.2, 0.4, 0.6]
    assert panel.first.plot.medians["original"].getOriginalDataset()[1][0] == 0.4


async def test_hidden_it_draws_nothing_and_catches_up_when_shown(panel, engines, until, monkeypatch):
    drawn = []
    monkeypatch.setattr(panel, "redraw", lambda: drawn.append(1))
    panel.hide()
    drawn.clear()
    samples(engines, "original", EngineSample(1, kv_usage=0.5))
    assert not panel._frames.waiting and drawn == []
    panel.show()
    assert drawn == [1]
    for at in range(100):
        samples(engines, "original", EngineSample(2 + at / 100, kv_usage=0.5))
    await until(lambda: len(drawn) == 2)


async def test_all_texts_follow_the_language(panel, engines):
    samples(engines, "original", EngineSample(1, kv_usage=0.5), EngineSample(2, kv_usage=0.5))
    samples(engines, "quantized", drafted(1, 10, 20), drafted(2, 20, 50))
    panel.add_reply("original", ReplyDone("stop", 0.4, 0.4, 2.0, 10, 20, 8.0))
    language.choose("zh_CN")
    panel.redraw()
    english = ("token", "request", "median", "prefill", "decode", "block", "speed", "live", "off", "accept")
    shown = [each.text() for each in panel.findChildren(QLabel) if each.text()]
    assert len(shown) > 20
    assert [words for words in shown if any(word in words.lower() for word in english)] == []


async def test_six_hours_are_drawn_quickly_and_do_not_pile_up(qtbot):
    plot = TimePlot("Speed")
    qtbot.addWidget(plot)
    plot.resize(300, 96)
    plot.show()
    points = [(at / 2, math.sin(at / 50) + 1 if at % 500 else None) for at in range(43_200)]
    plot.show_lines({"original": points}, 21_600)
    x, y = plot.curves["original"].getOriginalDataset()
    assert len(x) < 1_500 and np.isnan(y).any()
    gc.collect()
    tracemalloc.start()
    for _ in range(100):
        plot.show_lines({"original": points}, 21_600)
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2_000_000


async def test_one_request_and_equal_values_are_drawn(qtbot):
    plot = RequestPlot("Time to first token")
    qtbot.addWidget(plot)
    plot.show_requests([("original", 0.5)])
    plot.show_requests([("original", 0.5), ("quantized", None), ("quantized", 0.5)])
    x, _ = plot.points["quantized"].getData()
    assert list(x) == [3]
