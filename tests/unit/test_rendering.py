"""Answers cut into parts, whole and while they stream."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.chat.rendering import Added, Code, Folded, Opened, Reasoning, Splitter, Text, answer, parts

LIKELY = st.lists(
    st.sampled_from(
        ["`", "``", "```", "~~~", "\n", "\n\n", " ", "    ", "python", "<think>", "</think>", "</th", "a <b>", "é"]
    )
).map("".join)


def shown_after_each(chunks: list[str]) -> list[str]:
    splitter, shown, history = Splitter(), "", []
    for chunk in chunks:
        shown += "".join(change.text for change in splitter.feed(chunk) if isinstance(change, Added))
        history.append(shown)
    return history


def test_a_fence_that_is_never_closed():
    """H32."""
    chunks = ["Here:\n``", "`py", "thon\nfor i in range(3):\n", "    print(i)  # <b>x"]
    code = "for i in range(3):\n    print(i)  # <b>x"
    assert shown_after_each(chunks) == ["Here:\n", "Here:\n", "Here:\nfor i in range(3):\n", f"Here:\n{code}"]
    assert parts("".join(chunks)) == [Text("Here:\n"), Code("python", code, False)]
    assert parts("next") == [Text("next")]


def test_code_between_prose():
    text = "a\n```c++ title=x\nint x;\n\n  y\n```\nb\n~~~\n```\n~~~~\n"
    assert parts(text) == [
        Text("a\n"),
        Code("c++", "int x;\n\n  y", True),
        Text("b\n"),
        Code("", "```", True),
    ]


def test_a_fence_inside_a_list_loses_the_lists_indent():
    text = "1. do\n   ```sh\n   ls\n     -l\n   ```\n2. then"
    assert parts(text) == [Text("1. do\n"), Code("sh", "ls\n  -l", True), Text("2. then")]


@pytest.mark.parametrize("text", ["```x``` is inline", "``two`` marks", "say ```\n", "``", "`", "~~struck~~ out"])
def test_marks_that_are_no_fence_stay_prose(text):
    assert parts(text) == [Text(text)]


def test_a_shorter_mark_does_not_close():
    assert parts("````md\n```py\nx\n```\n````") == [Code("md", "```py\nx\n```", True)]


def test_angle_brackets_are_text():
    """H33."""
    text = 'Use <station>, vector<int> a; <script>alert(1)</script> <img src="file:///etc/hostname"> 3 < 5 & 7 > 2'
    assert parts(text) == [Text(text)]
    assert "".join(shown_after_each(list(text))[-1:]) == text


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("Okay, 2+2.\n</think>\n\n4", ""),
        ("<think>\nOkay, 2+2.\n</think>\n\n4", ""),
        ("4", "Okay, 2+2.\n"),
    ],
)
def test_reasoning_however_it_comes(text, apart):
    """H34 a, c, d."""
    assert parts(text, apart) == [Reasoning("Okay, 2+2.", True), Text("4")]
    assert answer(text) == "4"


def test_reasoning_that_was_cut_off():
    """H34 b."""
    assert parts("<think>and so on") == [Reasoning("and so on", False)]
    assert answer("<think>and so on") == ""
    assert parts("", "and so on") == [Reasoning("and so on", False)]


def test_an_empty_thought_is_not_shown():
    assert parts("<think>\n\n</think>\n\n4") == [Text("4")]
    assert answer("<think>\n\n</think>\n\n4") == "4"


def test_talk_about_the_tag_is_no_reasoning():
    text = "The tag </think> ends it.\n```\n</think>\n```\n"
    assert parts(text) == [Text("The tag </think> ends it.\n"), Code("", "</think>", True)]
    assert answer(text) == text


def test_code_inside_a_thought_folds_with_it():
    text = "Let me try\n```py\nx\n```\nYes.\n</think>\nDone."
    found = parts(text)
    assert found[0].closed and "Let me try" in found[0].text and "Yes." in found[0].text
    assert found[1:] == [Text("Done.")]
    splitter = Splitter()
    assert any(isinstance(change, Folded) for piece in text for change in splitter.feed(piece))


@settings(max_examples=400)
@given(LIKELY, st.integers(1, 7))
@example("<think>\n", 1)
@example("<think>\n\n</think>\n4", 1)
def test_pieces_give_the_same_as_the_whole(text, size):
    whole, pieces = Splitter(), Splitter()
    together = whole.feed(text) + whole.finish()
    apart = [change for at in range(0, len(text), size) for change in pieces.feed(text[at : at + size])]
    apart += pieces.finish()

    def joined(changes):
        folded: list = []
        for change in changes:
            if isinstance(change, Added) and folded and isinstance(folded[-1], Added):
                folded[-1] = Added(folded[-1].text + change.text)
            else:
                folded.append(change)
        return folded

    assert joined(together) == joined(apart)
    assert whole.answer_at == pieces.answer_at


@given(st.text(alphabet=st.characters(exclude_characters="`~<")))
def test_plain_text_is_never_changed(text):
    assert "".join(part.text for part in parts(text)) == text
    assert answer(text) == text


def test_the_first_change_opens_a_part():
    assert Splitter().feed("abc\n") == [Opened(Text("")), Added("abc\n")]
