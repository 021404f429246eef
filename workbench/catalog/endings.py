"""The chat template of a model and the tokens that end its turns."""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench import json_file
from workbench.catalog.problem import Problem
from workbench.words import Sentence

# Special tokens stand near the start of tokenizer.json, before a vocabulary of many megabytes.
_HEAD = 400_000
_LONGEST_TEMPLATE = 200_000
_ADDED = re.compile(r'"id"\s*:\s*(\d+)\s*,\s*"content"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Endings:
    """`ids` are all ids that any file calls an end; `turn` is the one that the template writes after an answer."""

    ids: tuple[int, ...]
    turn: int | None
    template: str | None
    problems: tuple[Problem, ...]


def read(folder: Path, config: dict[str, Any]) -> Endings:
    """End tokens of config.json, generation_config.json, tokenizer and template, and where they disagree."""
    tokenizer = _json(folder / "tokenizer_config.json")
    template = _template(folder, tokenizer)
    added = _added(folder, tokenizer)
    said = {"config.json": _ids(config.get("eos_token_id"))}
    if (folder / "generation_config.json").is_file():
        said["generation_config.json"] = _ids(_json(folder / "generation_config.json").get("eos_token_id"))
    name = _content(tokenizer.get("eos_token"))
    if name in added:
        said["tokenizer_config.json"] = (added[name],)
    ids = tuple(dict.fromkeys(number for part in said.values() for number in part))
    turn = _turn(template, added, tokenizer) if template else None
    problems = []
    if len({frozenset(part) for part in said.values() if part}) > 1:
        listed = "; ".join(f"{file} {', '.join(map(str, part))}" for file, part in said.items() if part)
        problems.append(
            Problem(
                "end_tokens_differ",
                Sentence("The files name different end tokens: {listed}.", {"listed": listed}),
                Sentence("All of them are used to end an answer."),
            )
        )
    if turn is not None and turn not in ids:
        problems.append(
            Problem(
                "turn_never_ends",
                Sentence("The chat template ends a turn with token {token}, which no file names as an end.",
                         {"token": turn}),
                Sentence("Add {token} to eos_token_id in generation_config.json.", {"token": turn}),
            )
        )  # fmt: skip
    return Endings(ids, turn, template, tuple(problems))


def _json(path: Path) -> dict[str, Any]:
    """The object in a side file; empty where the file is absent or damaged."""
    try:
        found = json_file.read(path)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _ids(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(number for number in values if type(number) is int)


def _content(token: Any) -> str | None:
    """A token is written as its text or as an object that holds it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _template(folder: Path, tokenizer: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    try:
        if path.is_file() and (text := path.read_text(encoding="utf-8")):
            return text
    except (OSError, ValueError):
        pass
    stored = tokenizer.get("chat_template")
    if isinstance(stored, list):  # several by name
        named = {entry.get("name"): entry.get("template") for entry in stored if isinstance(entry, dict)}
        stored = named.get("default")
    return stored if isinstance(stored, str) and stored else None


def _added(folder: Path, tokenizer: dict[str, Any]) -> dict[str, int]:
    """Text → id of the tokens that stand outside the vocabulary proper."""
    found = {}
    try:
        with (folder / "tokenizer.json").open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", errors="replace")
        found = {json.loads(text): int(number) for number, text in _ADDED.findall(head)}
    except (OSError, ValueError):
        pass
    listed = tokenizer.get("added_tokens_decoder")
    for number, token in listed.items() if isinstance(listed, dict) else ():
        if number.isdecimal() and (text := _content(token)):
            found[text] = int(number)
    return found


def _turn(template: str, added: dict[str, int], tokenizer: dict[str, Any]) -> int | None:
    """The first special token that the template writes after an assistant's answer."""
    if len(template) > _LONGEST_TEMPLATE:
        return None
    names = {key: _content(tokenizer.get(key)) or "" for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    written = _after_answer(template, tuple(names.items()))
    places = [(written.find(text), -len(text), number) for text, number in added.items() if text and text in written]
    return min(places)[2] if places else None


@lru_cache(maxsize=64)
def _after_answer(template: str, names: tuple[tuple[str, str], ...]) -> str:
    """What follows the answer in a rendered conversation; empty where the template refuses or fails."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["strftime_now"] = lambda form: ""
    environment.globals["raise_exception"] = lambda message: 1 / 0
    messages = [{"role": "user", "content": "Question"}, {"role": "assistant", "content": "Answer"}]
    try:
        # The tag belongs to transformers and only marks which part is the answer.
        plain = re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", template)
        text = environment.from_string(plain).render(messages=messages, add_generation_prompt=False, **dict(names))
    except Exception:  # a template is somebody's program: whatever it raises, there is just nothing to learn from it
        return ""
    return text.rpartition("Answer")[2]
