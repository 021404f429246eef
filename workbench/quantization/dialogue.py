"""Conversations in a text, and how the model itself would see them.

A chat model works on its template's marks most of the time, and its largest activations sit on them. Calibration and
measuring on plain prose alone never meet those.
"""

import re

from transformers import PreTrainedTokenizerBase

ROLES = {"user": "user", "assistant": "assistant", "用户": "user", "助手": "assistant"}
_TURN = re.compile(rf"^({'|'.join(ROLES)})\s*[:：]\s*", re.MULTILINE | re.IGNORECASE)


def turns(text: str) -> list[dict[str, str]]:
    """The turns of a document that begins with "User:" and alternates with "Assistant:"; empty for any other text."""
    found = list(_TURN.finditer(text))
    if len(found) < 2 or text[: found[0].start()].strip():
        return []
    ends = [mark.start() for mark in found[1:]] + [len(text)]
    said = [
        {"role": ROLES[mark[1].lower()], "content": text[mark.end() : end].strip()}
        for mark, end in zip(found, ends, strict=True)
    ]
    alternate = all(turn["role"] == ("user", "assistant")[at % 2] for at, turn in enumerate(said))
    return said if alternate and all(turn["content"] for turn in said) else []


def token_ids(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens of a document; a conversation in the model's own chat format where it has one."""
    said = turns(text)
    if said and getattr(tokenizer, "chat_template", None):
        try:
            rendered = tokenizer.apply_chat_template(said, tokenize=False)
        except Exception:  # a template is a program of the model's: whatever it raises, the plain text will do
            return tokenizer(text, verbose=False)["input_ids"]
        return tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"]
    return tokenizer(text, verbose=False)["input_ids"]
