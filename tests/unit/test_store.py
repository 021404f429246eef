"""Chats over restarts, crashes and damage (H40)."""

import subprocess
import sys
import time

import pytest

from workbench.chat.conversation import Conversation, Turn
from workbench.chat.store import Store
from workbench.errors import WorkbenchError
from workbench.events import ReplyDone, ReplyFailed, ReplyText
from workbench.runs import Reply

DONE = ReplyDone("stop", 0.4, 0.4, 2.0, 11, 30, 18.0, 3, 4, 1.75)


def turn(prompt: str, text: str = "an answer") -> Turn:
    reply = Reply("m")
    reply.apply(ReplyText(text, 0.0))
    reply.apply(DONE)
    return Turn(prompt, {"temperature": 0.5}, {"original": reply})


def test_a_chat_comes_back_as_it_was(tmp_path):
    store = Store(tmp_path / "chats.db")
    chat, first = Conversation(system="Be brief."), turn("Grüß Gott 日本語 👩‍🚀")
    failed = Reply("m4")
    failed.apply(ReplyText("thought", 0.0, True))
    failed.apply(ReplyFailed("{reason}", "hint", {"reason": "r"}))
    first.replies["quantized"] = failed
    first.together = True
    store.add_turn(chat, first)
    store.close()
    back = Store(tmp_path / "chats.db").load(chat.id)
    assert (back.id, back.system, back.at) == (chat.id, "Be brief.", chat.at)
    assert back.turns == [first]
    assert back.turns[0].replies["original"].done == DONE


def test_the_last_used_is_first_and_deleting_takes_all(tmp_path):
    store = Store(tmp_path / "chats.db")
    chats = [Conversation(), Conversation()]
    for n, chat in enumerate(chats):
        store.add_turn(chat, turn(f"chat {n}"))
    assert [listed.title for listed in store.listing()] == ["chat 1", "chat 0"]
    time.sleep(0.01)
    store.add_turn(chats[0], turn("more"))
    assert [listed.title for listed in store.listing()] == ["chat 0", "chat 1"]
    store.delete(chats[0].id)
    assert [listed.title for listed in store.listing()] == ["chat 1"]
    with pytest.raises(WorkbenchError, match="no longer there"):
        store.load(chats[0].id)
    assert store._db.execute("SELECT COUNT(*) FROM reply").fetchone() == (1,)


def test_while_it_streams_it_is_saved_about_once_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("workbench.chat.store.time.monotonic", lambda: now[0])
    store = Store(tmp_path / "chats.db")
    chat, open_turn = Conversation(), Turn("q", {}, {"original": Reply("m")})
    store.add_turn(chat, open_turn)

    def stored() -> str:
        return store.load(chat.id).turns[0].replies["original"].text

    for text, at_s, expected in (("a", 100.5, ""), ("b", 101.1, "ab"), ("c", 101.2, "ab")):
        now[0] = at_s
        open_turn.replies["original"].apply(ReplyText(text, at_s))
        store.save_reply(open_turn, "original")
        assert stored() == expected
    open_turn.replies["original"].apply(DONE)
    store.save_reply(open_turn, "original")
    assert stored() == "abc"


STORY = """
import sys, time
from pathlib import Path
from workbench.chat.conversation import Conversation, Turn
from workbench.chat.store import Store
from workbench.events import ReplyDone, ReplyText
from workbench.runs import Reply

store, chat = Store(Path(sys.argv[1])), Conversation()
for n in range(3):
    reply = Reply("m")
    reply.apply(ReplyText(f"answer {n}", 0.0))
    reply.apply(ReplyDone("stop", None, None, 1.0, None, None, None))
    store.add_turn(chat, Turn(f"question {n}", {}, {"original": reply}))
reply = Reply("m")
turn = Turn("question 3", {}, {"original": reply})
store.add_turn(chat, turn)
for n in range(10_000):
    reply.apply(ReplyText(f"{n} ", 0.0))
    store.save_reply(turn, "original")
    print(time.time(), n, flush=True)
    time.sleep(0.01)
"""


def test_kill_nine_in_the_middle_of_an_answer(tmp_path):
    """H40, first half."""
    path = tmp_path / "chats.db"
    child = subprocess.Popen([sys.executable, "-c", STORY, str(path)], stdout=subprocess.PIPE, text=True)
    began, last = None, ""
    for line in child.stdout:
        began, last = began or float(line.split()[0]), line
        if float(line.split()[0]) - began > 2.2:
            break
    child.kill()
    rest, _ = child.communicate()
    written = (rest.splitlines() or [last])[-1]
    store = Store(path)
    (listed,) = store.listing()
    turns = store.load(listed.id).turns
    assert [turn.prompt for turn in turns] == [f"question {n}" for n in range(4)]
    assert [turn.replies["original"].text for turn in turns[:3]] == [f"answer {n}" for n in range(3)]
    partial = turns[3].replies["original"]
    assert partial.state == "interrupted"
    saved = int(partial.text.split()[-1])
    assert saved > int(written.split()[1]) - 200, "older than two seconds"
    assert store.note is None


def test_a_damaged_file_is_set_aside_and_what_is_whole_is_rescued(tmp_path):
    """H40, second half."""
    path = tmp_path / "chats.db"
    store = Store(path)
    for n in range(40):
        store.add_turn(Conversation(), turn(f"chat {n}", "long answer " * 500))
    store.close()
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    store = Store(path)
    assert store.note is not None and store.note.level == "warning"
    aside = tmp_path / store.note.values["name"]
    assert aside.read_bytes() == raw[: len(raw) // 2]
    listing = store.listing()
    assert len(listing) == store.note.values["count"]
    for listed in listing:
        assert store.load(listed.id).turns[0].prompt == listed.title
    answers = [reply.text for listed in listing for reply in store.load(listed.id).turns[0].replies.values()]
    assert len(answers) >= 10 and set(answers) == {"long answer " * 500}
    store.add_turn(Conversation(), turn("new"))
    assert Store(path).note is None


def test_a_file_of_something_else_is_set_aside(tmp_path):
    path = tmp_path / "chats.db"
    path.write_text("no database " * 100)
    store = Store(path)
    assert store.note is not None and store.listing() == []
    assert (tmp_path / store.note.values["name"]).read_text().startswith("no database")


def test_a_folder_in_its_place_is_told(tmp_path):
    (tmp_path / "chats.db").mkdir()
    with pytest.raises(WorkbenchError, match="cannot be opened"):
        Store(tmp_path / "chats.db")
