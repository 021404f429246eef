"""The files that go with a model's weights: copied as they are, and looked at before the long run begins."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from transformers import GenerationConfig, PreTrainedTokenizerBase

from workbench import json_file
from workbench.errors import WorkbenchError, first_line
from workbench.events import Note

PATTERNS = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json",
    "preprocessor_config.json", "processor_config.json",
    "LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*",
)  # fmt: skip

CONVERSATION = [
    {"role": "user", "content": "Name a colour, please. 🙂"},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "And a fruit? 请用中文回答。"},
]
STRINGS = (
    "Hello, world!", " leading and trailing spaces ", "tabs\tand\nline breaks\r\n", "naïve café, Straße, Ünïcödé",
    "你好，世界。", "こんにちは", "안녕하세요", "Привет, мир", "مرحبا بالعالم", "नमस्ते",
    "🙂🚀👩‍👩‍👧‍👦", "1234567890 3.14159 -2e10",
    "def f(x):\n    return x ** 2", "<html><b>bold</b></html>", '{"key": ["value", null]}', "https://example.org/a?b=c#d",
    "CamelCaseAndsnake_case", "…—“quotes”", "aaaaaaaaaaaaaaaaaaaaaaaa", "<|im_start|>user\nHi<|im_end|>",
)  # fmt: skip


def copy(source: Path, target: Path) -> None:
    """Copied as they are: transformers would refuse to save some generation configs that it reads."""
    for file in _all(source):
        shutil.copyfile(file, target / file.name)


def require_readable(source: Path) -> None:
    """Refuse what `copy` could not read after the long run."""
    for file in _all(source):
        try:
            with file.open("rb") as opened:
                opened.read(1)
        except OSError as error:
            raise WorkbenchError(
                "{file} of the model cannot be read: {reason}.", "Check its rights, or fetch the file again.",
                file=file.name, reason=error.strerror or first_line(error),
            ) from error  # fmt: skip


def notes(source: Path) -> Iterator[Note]:
    """What is odd about them, before the run; none of it stops the run."""
    file = source / "generation_config.json"
    if not file.is_file():
        return
    try:
        GenerationConfig.from_dict(json_file.read(file)).validate(strict=True)
    except (ValueError, TypeError, OSError) as error:
        yield Note(
            "generation_config.json is copied as it is; transformers would not save it because of {reason}.",
            {"reason": _reason(error)},
        )


def _all(source: Path) -> Iterator[Path]:
    return (file for pattern in PATTERNS for file in source.glob(pattern))


def differing(source: PreTrainedTokenizerBase, result: PreTrainedTokenizerBase) -> str:
    """A string that both tokenizers turn into different ids; empty when there is none."""
    same = (string for string in STRINGS if source(string)["input_ids"] == result(string)["input_ids"])
    return next(iter(set(STRINGS) - set(same)), "")


def rendered(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """A conversation of three turns by the model's template; None without a template.

    What the template refuses is compared as well: both must refuse it in the same words.
    """
    if not tokenizer.chat_template:
        return None
    try:
        return tokenizer.apply_chat_template(CONVERSATION, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates raise whatever they like
        return f"{type(error).__name__}: {error}"


def _reason(error: Exception) -> str:
    """The names of the fields that are wrong, or what was said instead."""
    return ", ".join(re.findall(r"^- `(\w+)`", str(error), re.M)) or first_line(error)
