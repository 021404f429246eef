"""How sentences are filled: nouns that follow a number, in both languages."""

import pytest

from workbench import words
from workbench.events import Failed, decode, encode
from workbench.words import Sentence, say

TEMPLATE = "{count} {count:layer|layers} had to be rounded plainly: {names}."


@pytest.fixture(autouse=True)
def english():
    words.choose_language("en")
    yield
    words.choose_language("")


@pytest.mark.parametrize(
    ("count", "begins"),
    [(1, "1 layer had"), (0, "0 layers had"), (2, "2 layers had"), ("1", "1 layer had"), ("1,001", "1,001 layers had")],
)
def test_a_noun_follows_its_number(count, begins):
    assert say(TEMPLATE, count=count, names="a").startswith(begins)


def test_a_language_without_plurals_needs_none():
    words.choose_language("zh_CN")
    assert str(Sentence(TEMPLATE, {"count": 1, "names": "a"})) == "有 1 层只能直接舍入：a。"


def test_formats_of_python_still_hold():
    assert say("{share:.0%} of {tokens:,}", share=0.5, tokens=1234) == "50% of 1,234"


def test_without_values_braces_are_text():
    assert say("{this} stays") == "{this} stays"


def test_a_sentence_in_a_sentence_is_said_in_the_language_of_the_day_wherever_it_was_kept():
    check = Sentence("{count} {count:tensor|tensors}, all finite", {"count": 1})
    told = decode(encode(Failed("The result failed a check: {check} ({detail}).", "", {"check": check, "detail": "x"})))
    assert say(told.message, **told.values) == "The result failed a check: 1 tensor, all finite (x)."
    words.choose_language("zh_CN")
    assert "1 个张量" in say(told.message, **told.values) and "tensor" not in say(told.message, **told.values)
    assert words.plain({"check": check, "detail": "x"}) == told.values
