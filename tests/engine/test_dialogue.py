"""Conversations are seen as the model's own template renders them."""

from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from workbench.quantization import calibration, dialogue


def test_turns_of_a_conversation():
    text = "User: Hello\nthere\n\nAssistant: Hi.\n\nUser: Bye"
    assert dialogue.turns(text) == [
        {"role": "user", "content": "Hello\nthere"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Bye"},
    ]
    assert [turn["role"] for turn in dialogue.turns("用户：你好\n助手：您好")] == ["user", "assistant"]


OTHERS = (
    "Plain prose.",
    "User: alone",
    "He wrote:\nUser: a\nAssistant: b",
    "User: a\nUser: b",
    "Assistant: a\nUser: b",
    "User:\nAssistant: b",
)


@pytest.mark.parametrize("text", OTHERS)
def test_anything_else_is_no_conversation(text):
    assert dialogue.turns(text) == []


def test_a_conversation_is_rendered_by_the_template(tiny):
    tokenizer = AutoTokenizer.from_pretrained(str(tiny))
    said = "User: Hello\n\nAssistant: Hi."
    ids = dialogue.token_ids(said, tokenizer)
    assert ids == tokenizer(tokenizer.apply_chat_template(dialogue.turns(said), tokenize=False))["input_ids"]
    assert "user: Hello" in tokenizer.decode(ids) and "User:" not in tokenizer.decode(ids)


def test_a_template_that_refuses_leaves_the_plain_text():
    def refuse(*_args, **_options):
        raise ValueError("roles must alternate")

    class Tokenizer(SimpleNamespace):
        def __call__(self, text, **_options):
            return {"input_ids": list(text.encode())}

    tokenizer = Tokenizer(chat_template="x", apply_chat_template=refuse)
    assert dialogue.token_ids("User: a\nAssistant: b", tokenizer) == list(b"User: a\nAssistant: b")


def test_both_texts_of_ours_hold_conversations():
    for texts in (calibration.own_text(), calibration.held_text()):
        assert sum(bool(dialogue.turns(text)) for text in texts) >= 10
