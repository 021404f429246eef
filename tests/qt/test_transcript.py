"""The transcript: literal, copied exactly, quick to the last line, and still under a reader's eyes (H32-H35)."""

import asyncio
import time

import pytest
from PySide6.QtCore import QTimer, QUrl
from PySide6.QtGui import QGuiApplication

from ui.frames import FRAME_MS
from ui.widgets.transcript import Entry, Transcript
from workbench.events import ReplyDone, ReplyFailed, ReplyText
from workbench.runs import Reply
from workbench.words import Sentence

DONE = ReplyDone("stop", 0.4, 0.4, 2.0, 11, 30, 18.0)


@pytest.fixture
def view(qtbot):
    made = Transcript()
    qtbot.addWidget(made)
    made.resize(500, 400)
    made.show()
    return made


def said(text: str, reasoning: str = "", done=DONE) -> Reply:
    reply = Reply("m")
    if reasoning:
        reply.apply(ReplyText(reasoning, 0.0, True))
    if text:
        reply.apply(ReplyText(text, 0.0))
    if done:
        reply.apply(done)
    return reply


def stream(view: Transcript, *pieces: str, reasoning: bool = False) -> Reply:
    reply = said("", done=None)
    view.add(Entry("ask", reply))
    for piece in pieces:
        reply.apply(ReplyText(piece, 0.0, reasoning))
        view.extend(piece, reasoning)
        view.flush()
    return reply


def press(view: Transcript, target: str) -> None:
    view.anchorClicked.emit(QUrl(target))


def test_angle_brackets_are_shown_and_nothing_is_loaded(view, monkeypatch):
    """H33."""
    loaded = []
    monkeypatch.setattr(Transcript, "loadResource", lambda self, kind, name: loaded.append(name))
    text = 'Use <station>, vector<int> a; <script>alert(1)</script> <img src="file:///etc/hostname"> 3 < 5 & 7 > 2'
    view.show_entries(
        [Entry(text, said(text)), Entry("![x](file:///etc/hostname)", said("![x](file:///etc/hostname)"))]
    )
    assert view.toPlainText().count(text) == 2
    view.show_entries([])
    stream(view, *text)
    assert text in view.toPlainText()
    assert loaded == []
    assert Transcript.__mro__[0].__dict__["loadResource"] is not None


def test_a_real_resource_is_refused(view):
    assert view.loadResource(2, QUrl("file:///etc/hostname")) is None


def test_code_from_the_moment_its_fence_is_complete(view):
    """H32."""
    chunks = ["Here:\n``", "`py", "thon\nfor i in range(3):\n", "    print(i)  # <b>x"]
    reply = stream(view, *chunks)
    shown = view.toPlainText()
    assert "```" not in shown and "python" in shown
    assert "for i in range(3):\n    print(i)  # <b>x" in shown
    reply.apply(ReplyDone("length", 0.1, 0.1, 1.0, 1, 20, 10.0))
    view.finish([(Sentence("Cut off at the length limit."), False)])
    assert "for i in range(3):\n    print(i)  # <b>x\n" in view.toPlainText()
    press(view, "copy:0")
    assert QGuiApplication.clipboard().text() == "for i in range(3):\n    print(i)  # <b>x"
    press(view, "copy:1")
    assert QGuiApplication.clipboard().text() == "".join(chunks)
    stream(view, "plain")
    last = view.document().lastBlock()
    assert last.text() == "plain"
    assert last.blockFormat().background().style().value == 0


def test_streamed_and_reopened_look_the_same(view):
    text = "# Title\n\nSome *text*.\n\n1. one\n\n   more\n2. two\n\n```py\nx = 1\n\n```\ntail `code` 👩‍🚀\n"
    for size in (1, 3, 1000):
        view.show_entries([])
        reply = stream(view, *(text[at : at + size] for at in range(0, len(text), size)))
        reply.apply(DONE)
        view.finish([])
        streamed = view.toPlainText()
        view.show_entries([Entry("ask", reply)])
        assert streamed == view.toPlainText(), size


@pytest.mark.parametrize(
    "reply",
    [
        said("Okay, 2+2.\n</think>\n\n4"),
        said("<think>Okay, 2+2.</think>4"),
        said("4", "Okay, 2+2."),
    ],
)
def test_reasoning_folds_and_unfolds(view, reply):
    """H34 a, c, d."""
    entry = Entry("2+2?", reply)
    view.show_entries([entry])
    shown = view.toPlainText()
    assert "Okay" not in shown and "think>" not in shown and "Reasoning, 2 words" in shown
    assert view.answer_text(entry).strip("\u2029") == "4"
    press(view, "fold:0")
    assert "Okay, 2+2." in view.toPlainText()
    assert view.answer_text(entry).strip("\u2029") == "4"
    press(view, "copy:0")
    assert QGuiApplication.clipboard().text() == "4"


def test_reasoning_that_was_cut_off_stays_open(view):
    """H34 b."""
    view.show_entries([Entry("2+2?", said("<think>and so on"))])
    assert "and so on" in view.toPlainText()
    assert "no answer yet" in view.toPlainText()


def test_reasoning_sent_apart_streams_and_folds(view):
    reply = stream(view, "Hm", "m.", reasoning=True)
    assert "Hmm." in view.toPlainText()
    for piece in ("4", "!"):
        reply.apply(ReplyText(piece, 0.0))
        view.extend(piece)
    view.flush()
    assert "Hmm." not in view.toPlainText() and view.toPlainText().rstrip().endswith("4!")


def test_a_failed_reply_keeps_its_text(view):
    reply = stream(view, "Once upon")
    reply.apply(ReplyFailed("It broke."))
    view.finish([(Sentence("It broke."), True)])
    assert "Once upon" in view.toPlainText() and "It broke." in view.toPlainText()


def test_the_first_difference_is_marked_and_survives_a_rebuild(view):
    entry = Entry("ask", said("**one** two 👩‍🚀 three four"))
    view.show_entries([entry])
    view.mark(entry, view.answer_text(entry).index("three"), (Sentence("Same."), False))
    for _ in range(2):
        (mark,) = view.extraSelections()
        assert mark.cursor.selectedText() == "three"
        view.rebuild()
    assert view.toPlainText().count("Same.") == 1


def long_answer() -> list[str]:
    """20,000 pieces of about five characters, one code block of 3,000 lines among them."""
    prose = "".join(f"Sentence number {n} of this long answer.\n\n" for n in range(500))
    code = "```python\n" + "".join(f"x{n} = {n}\n" for n in range(3000)) + "```\n"
    text = prose + code
    text += "And so it goes on and on. " * ((100_000 - len(text)) // 26 + 1)
    return [text[at : at + 5] for at in range(0, 100_000, 5)]


async def test_a_very_long_answer_and_a_reader_who_scrolls_up(view, until, record_property):
    """H35: the loop's gaps stay small and do not grow; the reader stays where he is until he asks for the end."""
    pieces, gaps, last_s = long_answer(), [], [time.monotonic()]
    assert len(pieces) == 20_000

    def tick() -> None:
        gaps.append((time.monotonic() - last_s[0], at))
        last_s[0] = time.monotonic()

    at = 0
    ticker, drawer = QTimer(interval=10), QTimer(interval=FRAME_MS)
    ticker.timeout.connect(tick)
    drawer.timeout.connect(view.flush)
    reply = said("", done=None)
    view.add(Entry("ask", reply))
    ticker.start()
    drawer.start()
    bar, place = view.verticalScrollBar(), None
    rate = 2000  # four times as fast as the case, to keep the test short: four times the work per frame
    began_s = time.monotonic()
    while at < len(pieces):
        await asyncio.sleep(0.005)
        due = min(len(pieces), int((time.monotonic() - began_s) * rate))
        for piece in pieces[at:due]:
            reply.apply(ReplyText(piece, 0.0))
            view.extend(piece)
        at = due
        if place is None and at > len(pieces) // 2:
            assert view.following and bar.value() == bar.maximum()
            bar.setValue(bar.maximum() // 2)
            place = bar.value()
        if place is not None:
            assert abs(bar.value() - place) <= 2
            assert not view.following and view.end_button.isVisible()
    reply.apply(DONE)
    view.finish([])
    assert abs(bar.value() - place) <= 2
    view.end_button.click()
    assert view.following and bar.value() == bar.maximum() and not view.end_button.isVisible()
    stream(view, "and on\n" * 50)
    assert bar.value() == bar.maximum()
    ticker.stop()
    drawer.stop()
    tenths = [[gap for gap, done in gaps if done * 10 // 20_001 == tenth] for tenth in range(10)]
    means = [sum(tenth) / len(tenth) for tenth in tenths]
    record_property("gaps_ms", [round(max(tenth) * 1000) for tenth in tenths])
    print("longest gap by tenth, ms:", [round(max(tenth) * 1000) for tenth in tenths])
    print("mean gap by tenth, ms:", [round(mean * 1000, 1) for mean in means])
    assert max(gap for gap, _ in gaps) < 1.0
    assert means[-1] < 2 * means[0] + 0.01


async def test_a_chat_that_is_opened_out_of_sight_shows_its_end(qtbot, until):
    """The text is written at one width and first seen at a narrower one, where it is longer."""
    made = Transcript()
    qtbot.addWidget(made)
    made.resize(900, 400)
    made.show_entries([Entry(f"ask {n}", said("some words of an answer " * 60)) for n in range(4)])
    made.resize(380, 300)
    made.show()
    bar = made.verticalScrollBar()
    await until(lambda: bar.maximum() > 0)
    await asyncio.sleep(0.1)
    assert bar.value() == bar.maximum()
    assert made.following and not made.end_button.isVisible()


def test_code_stands_on_a_ground_with_room_around_it(view):
    view.show_entries([Entry("x", said("```\nfirst\n```\n\n```\nsecond\n```\n\nprose"))])
    view.verticalScrollBar().setValue(0)
    layout = view.document().documentLayout()
    picture, lines = view.viewport().grab().toImage(), [view.document().begin()]
    while lines[-1].next().isValid():
        lines.append(lines[-1].next())
    at = {block.text(): layout.blockBoundingRect(block).toRect() for block in lines}
    column = [picture.pixelColor(300, y) for y in range(picture.height())]
    first, second, prose = (at[name] for name in ("first", "second", "prose"))
    ground, plain = column[first.center().y()], column[prose.center().y()]
    assert ground != plain and column[first.top() + 20] == ground, "room under the last line"
    assert plain in column[first.top() : second.bottom()], "two codes are two grounds"
