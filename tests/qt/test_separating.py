"""Prefill and decode apart on the Serve page: the choice, its commands, its engines' lines, and how they start."""

import asyncio
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QLineEdit, QPlainTextEdit, QSpinBox

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_engine
from test_serve_page import folder_of, play

from ui import language
from ui.serve import both_ways
from ui.serve_page import ServePage
from workbench.catalog.capacity import Device
from workbench.catalog.folder import inspect
from workbench.engine import apart
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.engine.separation import Leg, Separation
from workbench.engine_events import EnginePhase, EngineReady, EngineSample, EngineStopped
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Failed, LegEvent, Stage
from workbench.measure.mixed_load import Comparison, Measured, Mix

FACTS = EngineFacts(
    **(fake_engine.FACTS | {
        "flags": frozenset([*fake_engine.FACTS["flags"], "--kv-transfer-config", "--tensor-parallel-size"]),
        "python": "/opt/python", "nixl": True, "router": True,
    })
)  # fmt: skip
CPU = Device("CPU", "cpu", 24_000_000_000, 20_000_000_000, packed_kernel=False)
GPU = Device("H200", "gpu", 140_000_000_000, 138_000_000_000)
READY = EngineReady("http://127.0.0.1:8101", "k", "small", 1, 20.0, 2.0)


@pytest.fixture
def page(settings, tasks, notices, engines, qtbot):
    made = ServePage(settings, tasks, notices, engines)
    qtbot.addWidget(made)
    made.show_facts(FACTS)
    made.show_devices([CPU])
    made.resize(1280, 900)
    made.show()
    return made


@pytest.fixture
def form(page, tmp_path):
    """The original's form with a model in its slot."""
    page.open(inspect(folder_of(tmp_path, "small")))
    page.forms["original"].separating_fold.open()
    return page.forms["original"]


async def test_what_the_engine_lacks_switches_the_choice_off_and_says_how_to_get_it(page, form, qtbot):
    page.show_facts(replace(FACTS, nixl=False))
    ways = form.separating.ways
    assert ways["one"].isEnabled() and not ways["apart"].isEnabled() and not ways["urls"].isEnabled()
    told = form.separating.lack.text()
    assert "not installed in /opt/python" in told and "/opt/python -m pip install" in told and "nixl==" in told
    qtbot.mouseClick(form.separating.copy_button, Qt.MouseButton.LeftButton)
    command = QApplication.clipboard().text()
    assert command.startswith("/opt/python -m pip install") and command in told
    page.show_facts(FACTS)
    assert ways["apart"].isEnabled() and form.separating.lack.isHidden()


async def test_one_engine_explains_its_steps(page, form, until):
    await until(lambda: "the engine chooses" in form.separating.words.text())
    form.options.batched.setValue(2048)
    await until(lambda: "at most 2,048 tokens" in form.separating.words.text())
    assert form.separating.legs.isHidden() and form.separating.urls.isHidden()


async def test_apart_says_what_it_costs_and_shows_the_three_commands(page, form, until, qtbot):
    qtbot.mouseClick(form.separating.ways["apart"], Qt.MouseButton.LeftButton)
    await until(lambda: "does not raise the throughput" in form.separating.words.text())
    assert "loads the weights" in form.separating.words.text() and "no key" in form.separating.words.text()
    page.redraw()
    parts = re.split(r"(?m)^# ", page.command.text)[1:]
    assert [part.splitlines()[0] for part in parts] == ["prefill engine", "decode engine", "router"]
    assert all("NixlConnector" in part and str(form.folder) in part for part in parts[:2])
    assert "vllm_router" in parts[2] and "8001" in parts[2] and "8002" in parts[2]
    form.separating.legs.tensor["decode"].setValue(3)
    page.redraw()
    prefill, decode, _ = re.split(r"(?m)^# ", page.command.text)[1:]
    page.profiles.fill_menu()
    exports = [action for action in page.profiles.menu.actions() if action.text().startswith("Write a")]
    assert page.profiles.menu.actions()[0].text() == "Save as…" and page.profiles.menu.actions()[0].isEnabled()
    assert len(exports) == 2 and not any(action.isEnabled() for action in exports), "one command is not enough"
    assert "--tensor-parallel-size 3" in decode and "--tensor-parallel-size" not in prefill
    card = page.cards["original"]
    assert list(card.legs.lines) == ["prefill", "decode"] and card.legs.isVisible() and not card.memory.isVisible()
    qtbot.mouseClick(form.separating.ways["one"], Qt.MouseButton.LeftButton)
    page.redraw()
    assert "# prefill" not in page.command.text and not card.legs.isVisible() and card.memory.isVisible()


async def test_the_form_gives_back_the_engines_that_it_was_given(page, form):
    page.show_devices([GPU, GPU])
    one = Profile(form.folder, context=2048)
    prefill = Leg(replace(one, tensor_parallel=2, memory_share=0.4), (0, 1))
    decode = Leg(replace(one, pipeline_parallel=2), (2, 3))
    given = Separation((prefill,), (decode,), 8123)
    form.show_profile(replace(one, port=8123))
    form.separating.show_separation(given)
    assert form.chosen() == given
    elsewhere = Separation((Leg(url="http://a:1"), Leg(url="http://b:2")), (Leg(url="https://c:3"),), 8123, "secret")
    form.separating.show_separation(elsewhere)
    assert form.chosen() == elsewhere


async def test_several_engines_of_a_kind_share_out_the_gpus(page, form, until):
    page.show_devices([GPU] * 4)
    form.separating.ways["apart"].click()
    fields = form.separating.legs
    fields.engines["prefill"].setValue(2)
    fields.devices["prefill"].setText("1,3")
    page.redraw()
    assert [leg.devices for leg in form.chosen().prefill] == [(1,), (3,)]
    assert form.separating.summary == "2P1D"
    assert list(page.cards["original"].legs.lines) == ["prefill 1", "prefill 2", "decode"]
    assert [part.splitlines()[0] for part in re.split(r"(?m)^# ", page.command.text)[1:]] == [
        "prefill engine 1", "prefill engine 2", "decode engine", "router",
    ]  # fmt: skip
    await until(lambda: "3 engines loads the weights" in form.separating.words.text())


async def test_gpus_are_chosen_only_where_there_are_some_and_problems_stop_a_start(page, form, told, until, qtbot):
    qtbot.mouseClick(form.separating.ways["apart"], Qt.MouseButton.LeftButton)
    devices = form.separating.legs.devices
    assert not devices["prefill"].isVisible()
    page.show_devices([GPU])
    assert devices["prefill"].isVisible()
    qtbot.keyClicks(devices["decode"], "3")
    await until(lambda: "needs GPU 3" in form.separating.problems.text())
    page.start()
    assert "needs GPU 3" in str(told[-1].sentence)
    devices["decode"].clear()
    qtbot.keyClicks(devices["decode"], "x")
    page.redraw()
    assert "are no GPUs" in page.command.remark.text()


async def test_engines_elsewhere_need_no_model_here(page, until, qtbot, engines, monkeypatch):
    page.redraw()
    assert not page.start_button.isEnabled()
    form = page.forms["original"]
    form.separating_fold.open()
    qtbot.mouseClick(form.separating.ways["urls"], Qt.MouseButton.LeftButton)
    page.redraw()
    assert "an engine each" in page.command.remark.text()
    form.separating.urls.prefill.setPlainText("http://10.0.0.4:8101\nhttp://[10.0.0.5:8101")
    form.separating.urls.decode.setPlainText("http://10.0.0.6:8201")
    page.redraw()
    assert "http://[10.0.0.5:8101 is no address" in page.command.remark.text()
    form.separating.urls.prefill.setPlainText("http://10.0.0.4:8101\n10.0.0.5:8101/v1")
    page.redraw()
    assert page.start_button.isEnabled() and page.cards["original"].isVisible()
    assert list(page.cards["original"].legs.lines) == ["prefill 1", "prefill 2", "decode"]
    card = page.cards["original"]
    assert not card.precision.isVisible() and not card.name.text()
    engines.run("original").ready = replace(READY, model="theirs")
    page.redraw()
    assert card.name.text() == "theirs"
    started = []
    monkeypatch.setattr(engines, "start", lambda side, chosen: started.append((side, chosen)))
    page.start()
    ((side, chosen),) = started
    assert side == "original" and [leg.url for leg in chosen.prefill] == [
        "http://10.0.0.4:8101",
        "http://10.0.0.5:8101",
    ]


def leg(name, *events):
    return [LegEvent(name, event) for event in events]


async def test_each_engine_has_its_light_start_and_figures(page, form, engines, monkeypatch, qtbot):
    form.separating.ways["apart"].click()
    engines._chosen["original"] = form.chosen()
    state = "starting"
    monkeypatch.setattr(engines, "state", lambda side: state if side == "original" else "stopped")
    now_s = time.monotonic()
    starting = EnginePhase("starting", now_s - 9)
    play(engines, "original", starting, *leg("prefill", starting, EnginePhase("weights", now_s - 4)))
    page.redraw()
    view = page.cards["original"].legs
    assert (
        view.lines["prefill"].light.word.text() == "starting"
        and view.lines["decode"].light.word.text() == "not yet started"
    )
    assert [round(segment.seconds) for segment in view.lines["prefill"].start.timeline.segments] == [5, 4]
    assert view.light.word.text() == "not yet started"
    for name in ("prefill", "decode"):
        handed = 480.0 if name == "decode" else 0.0
        play(
            engines, "original",
            *leg(
                name, starting, READY,
                EngineSample(1.0, running=1.0, waiting=0.0, kv_usage=0.1, prompt_tokens=0.0, generated_tokens=0.0),
                EngineSample(
                    2.0, running=3.0, waiting=1.0, kv_usage=0.2, prompt_tokens=500.0, generated_tokens=40.0,
                    external_tokens=handed,
                ),
            ),
        )  # fmt: skip
    state = "ready"
    play(engines, "original", replace(READY, url="http://127.0.0.1:9000", key=""))
    page.redraw()
    assert view.lines["prefill"].now.text() == "500 prompt tok/s · 3 running · 1 waiting · KV cache 20 % in use"
    assert view.lines["decode"].now.text().startswith("40.0 tok/s · 3 running")
    assert [value for _, value in view.lines["decode"].curve.points] == [None, 40.0]
    play(engines, "original", *leg("decode", replace(engines.run("original").legs["decode"]._counted, at_s=3.0)))
    page.redraw()
    assert view.lines["decode"].now.text().startswith("0 tok/s · ")
    assert view.address.full == "http://127.0.0.1:9000" and view.light.word.text() == "ready"
    assert view.handed.text() == "480 of 500 prompt tokens came from the prefill engine."
    assert not page.cards["original"].start.isVisible() and page.cards["original"].chat_button.isVisible()


async def test_the_engine_that_failed_is_shown_and_all_start_again_in_one_click(
    page, form, engines, until, monkeypatch, qtbot
):
    started = []

    async def serve_separated(separation, settings, on_event, log, ask):
        started.append(separation)
        on_event(EnginePhase("starting", time.monotonic()))
        for name in ("prefill", "decode"):
            for event in leg(name, EnginePhase("starting", time.monotonic()), READY):
                on_event(event)
        on_event(replace(READY, key=""))
        if len(started) > 1:
            await asyncio.Event().wait()
        on_event(LegEvent("prefill", Failed("The memory ran out.", "Take less.", {"max_length": 512})))
        on_event(LegEvent("decode", EngineStopped()))
        values = {"leg": "prefill engine", "cause": "The memory ran out."}
        on_event(Failed("The {leg} failed: {cause}", "Take less.", values))
        raise WorkbenchError("The {leg} failed: {cause}", "Take less.", **values)

    monkeypatch.setattr(apart, "serve_separated", serve_separated)
    form.separating.ways["apart"].click()
    page.start()
    card = page.cards["original"]
    await until(card.failure.isVisible)
    assert card.failure.sentence.text() == "The prefill engine failed: The memory ran out."
    lights = {name: line.light.word.text() for name, line in card.legs.lines.items()}
    assert lights == {"prefill": "failed", "decode": "stopped"}
    assert card.retry_button.text() == "Start with 512 tokens", "the length that the engine named"
    qtbot.mouseClick(card.retry_button, Qt.MouseButton.LeftButton)
    await until(lambda: engines.state("original") == "ready")
    assert [each.decode[0].profile.context for each in started] == [None, 512]
    assert engines.endpoint("original").key == "" and engines.profile("original").context == 512
    assert not engines._watching, "the router has no figures to poll"
    page.redraw()
    assert card.legs.lines["prefill"].light.word.text() == "ready"
    qtbot.mouseClick(card.stop_button, Qt.MouseButton.LeftButton)
    await until(lambda: engines.state("original") == "stopped")


async def test_figures_of_an_engine_are_told_as_figures(engines, monkeypatch, until, form):
    """So that pages redraw for them as seldom as for those of one engine."""
    told = {"sampled": 0, "changed": 0}
    engines.sampled.connect(lambda _side: told.update(sampled=told["sampled"] + 1))

    async def serve_separated(separation, settings, on_event, log, ask):
        on_event(LegEvent("decode", EngineSample(1.0)))

    monkeypatch.setattr(apart, "serve_separated", serve_separated)
    form.separating.ways["apart"].click()
    engines.start("original", form.chosen())
    await until(lambda: told["sampled"] == 1)


async def test_engines_apart_are_unloaded_together_when_all_are_idle(engines, settings, monkeypatch, until, form):
    form.separating.ways["apart"].click()
    settings.unload_idle = 1
    unloaded, tell = [], []

    async def serve_separated(separation, settings, on_event, log, ask):
        tell.append(on_event)
        await asyncio.sleep(60)

    def poll(at_s, **running):
        for name in ("prefill", "decode"):
            tell[0](LegEvent(name, EngineSample(at_s, running.get(name, 0.0), 0.0)))

    monkeypatch.setattr(apart, "serve_separated", serve_separated)
    engines.unloaded.connect(lambda *values: unloaded.append(values))
    engines.start("original", form.chosen())
    await until(lambda: tell)
    poll(100)
    poll(200)
    assert not unloaded, "they still start"
    tell[0](READY)
    poll(210, decode=1.0)
    poll(269)
    assert not unloaded and engines.state("original") == "ready"
    poll(271)
    assert unloaded == [("original", 1)]
    await until(lambda: engines.state("original") == "stopped")


async def test_everything_is_named_and_follows_the_language(page, form, until):
    for mode in ("apart", "urls"):
        form.separating.ways[mode].click()
        fields = [
            each
            for kind in (QAbstractButton, QLineEdit, QPlainTextEdit, QSpinBox)
            for each in form.separating.findChildren(kind)
            if each.objectName() != "qt_spinbox_lineedit"
        ]
        assert [each for each in fields if not each.accessibleName()] == []
    form.separating.ways["apart"].click()
    await until(lambda: form.separating.words.text())
    language.choose("zh_CN")
    page.redraw()
    labels = [*form.separating.findChildren(QLabel), *page.cards["original"].legs.findChildren(QLabel)]
    texts = [each.text() for each in (*labels, *form.separating.findChildren(QAbstractButton)) if each.text()]
    assert [text for text in texts if re.search(r"\b(prefill|decode|engine|front|key|weights)\b", text, re.I)] == []


async def test_both_ways_are_measured_and_the_slower_one_is_shown_as_such(page, form, until, monkeypatch, qtbot, told):
    mix, go_on, asked = Mix(), asyncio.Event(), []
    one = Measured([0.4, 0.5], [0.030, 0.090], [1.0], 100, 10.0)
    apart_ = Measured([0.8, 1.0], [0.010, 0.030], [1.2], 90, 10.0, failed=1)

    async def compare(separation, mix, settings, on_event):
        asked.append(separation)
        on_event("one", EnginePhase("weights", 1.0))
        on_event("apart", Stage("Mixed load", 6))
        on_event("apart", Advanced(3))
        await go_on.wait()
        return Comparison(mix, one, apart_)

    monkeypatch.setattr(both_ways, "compare_separated", compare)
    card = page.both_ways
    page.redraw()
    assert not card.isVisible(), "there is nothing to compare with one engine"
    form.separating.ways["apart"].click()
    page.redraw()
    assert card.isVisible() and card.words.text() == str(mix.sentence)
    qtbot.mouseClick(card.compare_button, Qt.MouseButton.LeftButton)
    await until(lambda: "Apart" in card.progress.words.text())
    page.redraw()
    assert card.progress.bar.value() == 500 and not page.start_button.isEnabled() and page.statuses()
    go_on.set()
    await until(card.verdict.isVisible)
    page.redraw()
    assert page.start_button.isEnabled() and asked == [form.chosen()]
    shown = {}
    for row, found in enumerate(Comparison(mix, one, apart_).rows(), 1):
        cells = [card.table.itemAtPosition(row, column).widget() for column in range(4)]
        assert [cell.text() for cell in cells[1:]] == list(found.texts)
        shown[found.name] = cells[3].property("tone")
    assert shown["first_median_s"] == "rejected" and shown["between_p95_s"] == "accepted"
    assert "one engine" in card.verdict.text()


async def test_a_comparison_can_be_cancelled_and_its_failure_is_told(page, form, until, monkeypatch, qtbot, told):
    async def compare(separation, mix, settings, on_event):
        if ended:
            raise WorkbenchError("The memory ran out.", "Take less.")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    ended: list[int] = []
    monkeypatch.setattr(both_ways, "compare_separated", compare)
    form.separating.ways["apart"].click()
    page.redraw()
    card = page.both_ways
    card.compare()
    await asyncio.sleep(0)
    page.redraw()
    qtbot.mouseClick(card.cancel_button, Qt.MouseButton.LeftButton)
    await until(lambda: not card.is_comparing)
    page.redraw()
    assert ended and not told and card.compare_button.isEnabled() and card.verdict.isHidden()
    card.compare()
    await until(lambda: told)
    assert "memory ran out" in str(told[-1].sentence) and not card.is_comparing
