"""The chat page against scripted servers: asking one or two engines, stopping, failing, coming back (H35-H37, H43)."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_server import DROP, FakeServer, answer, delta, usage
from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest

from ui import language, theme
from ui.chat_page import ChatPage
from workbench.chat.store import Store
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Adapter
from workbench.engine.speculation import Speculation
from workbench.engine_events import EnginePhase, EngineReady, EngineStopped
from workbench.events import Failed
from workbench.runs import EngineRun


@dataclass(frozen=True)
class FakeProfile:
    model: Path
    speculation: object = None
    adapters: tuple[Adapter, ...] = ()
    scheduling: str = "fcfs"


class FakeEngines(QObject):
    """Engines as the page sees them; their states are real runs fed with events."""

    changed = Signal(str)

    def __init__(self):
        super().__init__()
        self.runs = {side: EngineRun() for side in ("original", "quantized")}
        self.alternating = False
        self.switched = []
        self.started = []
        self.speculation = None
        self.adapters = ()
        self.scheduling = {}
        self.model = Path("/no/such/model")

    def run(self, side):
        return self.runs[side]

    def state(self, side):
        return self.runs[side].state

    def endpoint(self, side):
        ready = self.runs[side].ready
        return Endpoint(ready.url, ready.key, ready.model) if self.state(side) == "ready" else None

    def profile(self, side):
        ready = self.runs[side].ready
        scheduling = self.scheduling.get(side, "fcfs")
        return FakeProfile(self.model, self.speculation, self.adapters, scheduling) if ready else None

    chosen = profile

    def server(self, side):
        return None

    def can_switch(self, side):
        return self.alternating and self.state(side) == "stopped"

    def start(self, side, profile):
        self.started.append((side, profile))

    async def switch(self, side):
        self.switched.append(side)

    def apply(self, side, event):
        self.runs[side].apply(event)
        self.changed.emit(side)

    def serve(self, side, server, name):
        self.apply(side, EngineReady(server.url, server.key, name, 1, 60.0))


@pytest.fixture
def servers():
    with FakeServer(answer("Good", " day")) as one, FakeServer(answer("Good", " night"), key="k") as two:
        yield {"original": one, "quantized": two}


@pytest.fixture
def engines():
    return FakeEngines()


@pytest.fixture
async def page(qtbot, settings, tasks, notices, engines, tmp_path):
    made = ChatPage(settings, tasks, notices, engines, Store(tmp_path / "chats.db"))
    qtbot.addWidget(made)
    made.resize(1200, 700)
    made.show()
    yield made
    await tasks.stop_all()


@pytest.fixture
async def both(engines, servers):
    engines.serve("original", servers["original"], "smol")
    engines.serve("quantized", servers["quantized"], "smol-int4")
    return servers


def ask(page, text="Say hello"):
    page.redraw()
    page.composer.setPlainText(text)
    QTest.keyClick(page.composer, Qt.Key.Key_Return)


def shown(page, side):
    return page.columns[side].transcript.toPlainText()


async def done(page, until):
    await until(lambda: not page.running)
    page.redraw()


def test_without_an_engine_the_page_says_what_to_do(page, qtbot):
    assert page.stack.currentWidget() is page.empty
    assert not page.send_button.isEnabled() and not page.composer.isEnabled()
    with qtbot.waitSignal(page.serve_asked):
        page.empty.findChild(type(page.send_button)).click()


async def test_one_engine_is_one_column(page, engines, servers, until):
    engines.apply("original", EnginePhase("starting", 0.0))
    page.redraw()
    assert page.columns["original"].isVisible() and "starting" in page.columns["original"].about.full
    engines.serve("original", servers["original"], "smol")
    ask(page)
    await done(page, until)
    assert page.columns["original"].isVisible() and not page.columns["quantized"].isVisible()
    assert "Good day" in shown(page, "original") and "Say hello" in shown(page, "original")
    assert "2 tokens" in shown(page, "original") and "– accepted/step" in shown(page, "original")
    assert page.composer.text == "" and not page.sampling.order.isVisible()


async def test_both_get_the_same_and_the_first_difference_is_marked(page, both, until):
    """H43."""
    both["original"].script = answer(*"one two three four five six seven".replace(" ", "| ").split("|"))
    both["quantized"].script = answer(*"one two three four five SIX seven".replace(" ", "| ").split("|"))
    replies = []
    page.replied.connect(lambda side, reply: replies.append((side, reply.tokens)))
    ask(page)
    await done(page, until)
    sent = [server.requests[0] for server in both.values()]
    assert [body.pop("model") for body in sent] == ["smol", "smol-int4"]
    assert sent[0] == sent[1]
    assert sent[0]["temperature"] == 0.0 and sent[0]["max_tokens"] == page.sampling.longest.value()
    assert both["quantized"].headers[0]["authorization"] == "Bearer k"
    for side, word in (("original", "six"), ("quantized", "SIX")):
        (mark,) = page.columns[side].transcript.extraSelections()
        assert mark.cursor.selectedText() == word
        assert "Same for 5 words" in shown(page, side)
    assert replies == [("original", 7), ("quantized", 7)]


async def test_one_after_the_other_unless_told_otherwise(page, both, until):
    for server in both.values():
        server.script = answer("a", " b", " c", delay_s=0.05)
    ask(page)
    await done(page, until)
    assert both["quantized"].sent_s[0] > both["original"].sent_s[-1]
    assert "answered too" not in shown(page, "original")
    page.sampling.order.setCurrentIndex(1)
    ask(page)
    await done(page, until)
    assert both["quantized"].sent_s[0] < both["original"].sent_s[-1]
    assert "answered too" in shown(page, "original") and "answered too" in shown(page, "quantized")


async def test_the_next_turn_carries_each_sides_own_answers(page, both, until):
    both["original"].script = answer("<think>hm</think>", "Good day")
    ask(page, "first")
    await done(page, until)
    ask(page, "second")
    await done(page, until)
    for server, said in ((both["original"], "Good day"), (both["quantized"], "Good night")):
        assert [message["content"] for message in server.requests[1]["messages"]] == ["first", said, "second"]


@pytest.mark.parametrize("after", [3, 0])
async def test_stop(page, both, until, after):
    """H37."""
    for server in both.values():
        server.script = [(0.03 if after else 5.0, delta(f"word{n} ")) for n in range(500)]
    ask(page)
    first = both["original"]
    await until(lambda: first.requests and (not after or f"word{after}" in shown(page, "original")))
    await until(page.stop_button.isVisible)
    page.stop_button.click()
    await until(lambda: first.disconnected_s)
    await done(page, until)
    assert page.send_button.isVisible() and not page.stop_button.isVisible()
    for side in both:
        assert "Stopped." in shown(page, side)
        assert "Waiting" not in shown(page, side)
    assert not both["quantized"].requests
    kept = shown(page, "original")
    assert bool(after) == ("word1" in kept)
    for server in both.values():
        server.script = answer("fresh")
    ask(page, "again")
    await done(page, until)
    assert shown(page, "original").startswith(kept.rstrip()) and "fresh" in shown(page, "original")


async def test_a_refusal_stays_in_the_chat_and_the_prompt_returns(page, engines, servers, until, told):
    server = servers["original"]
    engines.serve("original", server, "smol")
    server.status, server.body = 400, '{"error": {"message": "maximum context length is 256 tokens"}}'
    ask(page, "a long story")
    await done(page, until)
    assert "maximum context length is 256 tokens" in shown(page, "original")
    assert page.composer.text == "a long story"
    assert told == []


async def test_one_side_breaks_the_other_is_shown(page, both, until):
    both["original"].script = [(0, delta("Once")), (0.05, DROP)]
    ask(page)
    await done(page, until)
    assert "Once" in shown(page, "original") and "broke off" in shown(page, "original")
    assert "Good night" in shown(page, "quantized")
    assert page.composer.text == ""
    assert not page.columns["quantized"].transcript.extraSelections()


async def test_speculation_is_shown(page, engines, servers, until):
    figures = {"mean_acceptance_length": 2.8, "num_accepted_draft_tokens": 9, "num_draft_tokens": 20}
    servers["original"].script = [
        (0, delta("x")),
        (0, delta(finish="stop")),
        (0, usage(5, 14, metrics={"speculative_decoding": figures})),
        (0, "data: [DONE]\n\n"),
    ]
    engines.serve("original", servers["original"], "smol")
    ask(page)
    await done(page, until)
    assert "14 tokens · 2.8 accepted/step" in shown(page, "original")


async def test_h26_what_speculation_refuses_is_not_sent(page, engines, servers, until):
    server = servers["original"]
    engines.serve("original", server, "smol")
    page.sampling.least.setValue(0.05)
    ask(page)
    await done(page, until)
    assert server.requests[-1]["min_p"] == 0.05
    engines.speculation = Speculation()
    engines.changed.emit("original")
    await until(lambda: not page.sampling.least.isEnabled())
    assert "refuses min_p" in page.sampling.least.toolTip() == page.sampling.least.accessibleDescription()
    ask(page)
    await done(page, until)
    assert not {"min_p", "logit_bias"} & set(server.requests[-1])
    engines.speculation = None
    page.redraw()
    assert page.sampling.chosen().min_p == 0.05, "the number was kept"


async def test_h26_a_refusal_is_shown_and_the_prompt_kept(page, engines, servers, until):
    """An engine that this window did not start may draft all the same."""
    server = servers["original"]
    server.status, server.body = 400, '{"error": {"message": "min_p is not yet supported with speculative decoding"}}'
    engines.serve("original", server, "smol")
    page.sampling.least.setValue(0.05)
    ask(page, "What is lost?")
    await until(lambda: "not yet supported" in shown(page, "original"))
    await until(lambda: page.composer.text == "What is lost?")


async def test_a_side_that_comes_later_answers_the_last_prompt(page, engines, servers, until):
    """Where both do not fit: one after the other."""
    engines.alternating = True
    engines.serve("original", servers["original"], "smol")
    ask(page)
    await done(page, until)
    engines.apply("original", EngineStopped())
    engines.serve("quantized", servers["quantized"], "smol-int4")
    page.redraw()
    original, quantized = page.columns.values()
    assert original.action.isVisible() and original.action.text() == "Run this side instead"
    assert quantized.action.isVisible() and quantized.action.text() == "Answer here too"
    quantized.action.click()
    await done(page, until)
    assert "Good night" in shown(page, "quantized") and "Good day" in shown(page, "original")
    assert "Same for 1 word" in shown(page, "quantized")
    original.action.click()
    await done(page, until)
    assert engines.switched == ["original"]


async def test_chats_come_back(page, both, until, qtbot, settings, tasks, notices, engines, tmp_path):
    ask(page, "What was it?")
    await done(page, until)
    before = {side: shown(page, side) for side in both}
    page.new_chat()
    assert shown(page, "original").strip() == ""
    ask(page, "Another")
    await done(page, until)
    again = ChatPage(settings, tasks, notices, engines, Store(tmp_path / "chats.db"))
    qtbot.addWidget(again)
    titles = [again.history.list.item(row).text() for row in range(again.history.list.count())]
    assert titles == ["Another", "What was it?"]
    again.history.list.setCurrentRow(1)
    again.history.list.itemClicked.emit(again.history.list.item(1))
    assert {side: shown(again, side) for side in both} == before
    again.delete_chat(again.conversation.id)
    assert again.history.list.count() == 1 and shown(again, "original").strip() == ""


async def test_another_chat_is_opened_while_one_streams(page, both, until):
    both["original"].script = [(0.02, delta(f"word{n} ")) for n in range(500)]
    ask(page, "long")
    await until(lambda: "word2" in shown(page, "original"))
    page.new_chat()
    await done(page, until)
    assert "word" not in shown(page, "original") and "Stopped" not in shown(page, "original")
    page.open_chat(page.store.listing()[0].id)
    assert "word2" in shown(page, "original") and "Stopped." in shown(page, "original")


async def test_an_input_method_keeps_its_enter(page, both, until):
    """H36."""
    sends = []
    page.redraw()
    page.composer.sent.connect(lambda: sends.append(page.composer.text))
    page.composer.setFocus()
    page.composer.inputMethodEvent(QInputMethodEvent("にほんご", []))
    QTest.keyClick(page.composer, Qt.Key.Key_Return)
    assert sends == []
    commit = QInputMethodEvent("", [])
    commit.setCommitString("日本語")
    page.composer.inputMethodEvent(commit)
    page.composer.sent.disconnect(page.send)
    QTest.keyClick(page.composer, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert sends == [] and page.composer.toPlainText() == "日本語\n"
    QTest.keyClick(page.composer, Qt.Key.Key_Return)
    assert sends == ["日本語"]


async def test_text_follows_language_and_theme(page, both, until):
    ask(page)
    await done(page, until)
    assert "tokens" in shown(page, "original")
    language.choose("zh_CN")
    page.redraw()
    assert "tokens" not in shown(page, "original") and "词元" in shown(page, "original")
    assert page.send_button.text() == "发送"
    before = shown(page, "original")
    theme.changed.emit()
    assert shown(page, "original") == before


async def test_closing_while_it_streams_keeps_what_came(page, both, until, tasks):
    both["original"].script = [(0.02, delta(f"word{n} ")) for n in range(500)]
    ask(page, "long")
    await until(lambda: "word2" in shown(page, "original"))
    await asyncio.wait_for(tasks.stop_all(), 2)
    reply = page.store.load(page.conversation.id).turns[0].replies["original"]
    assert reply.state == "stopped" and "word2" in reply.text


def test_everything_can_be_reached_and_named(page):
    for widget in (page.composer, page.send_button, page.stop_button, page.sampling.temperature, page.history.list):
        assert widget.accessibleName(), widget
    for widget in (page.composer, page.send_button, page.sampling.temperature, page.columns["original"].transcript):
        assert widget.focusPolicy() & Qt.FocusPolicy.TabFocus, widget


async def test_an_adapter_is_chosen_to_answer(page, engines, servers, until):
    column = page.columns["original"]
    engines.serve("original", servers["original"], "smol")
    await until(lambda: column.name.full == "smol")
    assert not column.who.isVisible() and column.name.isVisible(), "one model is no choice"
    engines.adapters = (Adapter("style", Path("/a")), Adapter("law", Path("/b")))
    page.touch()
    await until(column.who.isVisible)
    assert [column.who.itemText(index) for index in range(3)] == ["smol", "style", "law"]
    assert not column.name.isVisible() and column.who.accessibleName()

    column.who.setCurrentIndex(1)
    column.who.activated.emit(1)
    QTest.keyClicks(page.composer, "hello")
    page.send()
    await until(lambda: page.conversation.turns and page.conversation.turns[0].replies["original"].done)
    assert servers["original"].requests[-1]["model"] == "style"
    assert page.conversation.turns[0].replies["original"].model == "style"

    engines.adapters = ()  # another start, without them
    page.touch()
    await until(lambda: not column.who.isVisible() and column.name.full == "smol")


async def test_an_engine_with_priority_scheduling_is_told_how_long_an_answer_to_expect(page, engines, both, until):
    engines.scheduling = {"quantized": "priority"}
    ask(page, "one")
    await done(page, until)
    ask(page, "two")
    await done(page, until)
    sent = [request.get("priority") for request in both["quantized"].requests]
    assert sent == [both["quantized"].requests[0]["max_tokens"], 2], "first the limit, then as its last answer was"
    assert [request.get("priority") for request in both["original"].requests] == [None, None]


async def test_an_engine_that_dies_says_why_starts_again_in_one_click_and_loses_no_text(page, engines, both, until):
    """What was typed stays; so does what was asked while it died."""
    page.composer.setPlainText("half a thought")
    engines.apply("original", Failed("The engine's core was killed.", "Close other programs."))
    page.redraw()
    column = page.columns["original"]
    assert page.composer.text == "half a thought" and page.composer.isEnabled()
    assert column.isVisible() and "core was killed" in column.about.full
    assert column.action.isVisible() and column.action.text() == "Start again"
    QTest.mouseClick(column.action, Qt.MouseButton.LeftButton)
    assert [side for side, _ in engines.started] == ["original"]
    engines.apply("quantized", Failed("The engine's core was killed."))
    page.redraw()
    assert not page.send_button.isEnabled()
    ask(page, "half a thought")
    assert page.composer.text == "half a thought", "nobody is there to ask"


async def test_an_engine_that_dies_while_it_answers_loses_neither_the_answer_nor_the_next_thought(
    page, engines, servers, until
):
    server = servers["original"]
    engines.serve("original", server, "smol")
    server.script = [(0, delta("Once ")), (0.5, {"error": {"message": "EngineCore died"}}), (0, "data: [DONE]\n\n")]
    ask(page, "a long story")
    await until(lambda: "Once" in shown(page, "original"))
    page.composer.setPlainText("and then")
    await done(page, until)
    engines.apply("original", Failed("The engine's core was killed."))
    page.redraw()
    said = shown(page, "original")
    assert "a long story" in said and "Once" in said and "EngineCore died" in said
    assert page.composer.text == "and then" and page.composer.isEnabled()
    (kept,) = page.store.load(page.conversation.id).turns
    assert kept.replies["original"].state == "failed" and kept.replies["original"].text == "Once "
    page.columns["original"].action.click()
    assert [side for side, _ in engines.started] == ["original"]
    server.script = answer("more")
    engines.serve("original", server, "smol")
    page.redraw()
    QTest.keyClick(page.composer, Qt.Key.Key_Return)
    await done(page, until)
    assert "more" in shown(page, "original") and page.composer.text == ""


async def test_h28_the_models_own_values_are_shown_and_can_be_left_out(page, engines, servers, until, tmp_path, qtbot):
    own = {"temperature": 0.2, "top_k": 1, "top_p": 0.01, "repetition_penalty": 1.1, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(own))
    engines.model = tmp_path
    engines.serve("original", servers["original"], "smol")
    box = page.sampling.own
    await until(box.isVisible)
    assert "top_k 1" in box.text() and "(model)" in box.text() and "temperature" not in box.text()
    page.sampling.temperature.setValue(1.0)
    ask(page)
    await done(page, until)
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.height() // 2))
    ask(page)
    await done(page, until)
    fields = ("temperature", "top_k", "top_p", "repetition_penalty")
    sent = [tuple(request[name] for name in fields) for request in servers["original"].requests]
    assert sent == [(1.0, 1, 0.01, 1.1), (1.0, 0, 1.0, 1.0)]
    kept = page.store.load(page.conversation.id).turns
    assert [tuple(turn.sampling[name] for name in fields) for turn in kept] == sent, "stored with each answer"
