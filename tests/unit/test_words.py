"""How sentences are filled: nouns that follow a number, in both languages."""

import pytest

from workbench import words
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
