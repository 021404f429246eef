"""What is sent for the next turn, and what a chat is called."""

from workbench.chat.conversation import Conversation, Turn, messages, title_of
from workbench.events import ReplyFailed, ReplyText
from workbench.measure.timing import Difference, first_difference, word_count
from workbench.runs import Reply


def said(text: str, reasoning: str = "") -> Reply:
    reply = Reply("m")
    if reasoning:
        reply.apply(ReplyText(reasoning, 0.0, True))
    if text:
        reply.apply(ReplyText(text, 0.0))
    return reply


def test_reasoning_is_not_sent_back():
    """H34."""
    for reply in (said("Okay, 2+2.\n</think>\n\n4"), said("<think>Okay</think>4"), said("4", "Okay")):
        chat = Conversation([Turn("2+2?", replies={"original": reply})], system="Be brief.")
        assert messages(chat, "original", "And 3+3?") == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "4"},
            {"role": "user", "content": "And 3+3?"},
        ]


def test_a_turn_without_an_answer_is_left_out():
    broken = said("")
    broken.apply(ReplyFailed("It broke."))
    chat = Conversation([Turn("one", replies={"original": broken}), Turn("two", replies={"quantized": said("2")})])
    assert messages(chat, "original", "three") == [{"role": "user", "content": "three"}]
    assert len(messages(chat, "quantized", "three")) == 3


def test_titles():
    assert title_of("\n  Why is the sky blue?\nTell me.") == "Why is the sky blue?"
    assert title_of("word " * 40) == "word word word word word word word word word word word word…"
    assert title_of("天" * 100) == "天" * 60 + "…"
    assert Conversation().title == ""


def test_the_first_difference():
    """H43: the answers differ from the sixth word on."""
    one, other = "one two three four five six seven", "one two  three four\nfive SIX seven"
    assert first_difference(one, other) == Difference(5, one.index("six"), other.index("SIX"))
    assert first_difference("a b", "a b c") == Difference(2, 3, 4)
    assert first_difference("", "x") == Difference(0, 0, 0)
    assert first_difference("the same", "the  same ") is None
    assert first_difference("天是蓝的", "天是红的") == Difference(2, 2, 2)
    assert word_count("one two 天地") == 4
