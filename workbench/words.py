"""Sentences for people: written in English in the code, shown in the chosen language.

A sentence stays a template with its values until it is shown, so a job's events, an error and a label
follow a change of language. The template is a literal at the place that uses it; tests collect them.
"""

import json
import locale
import os
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

LANGUAGES = {"en": "English", "zh_CN": "简体中文"}

_chosen = ""


@dataclass(frozen=True)
class Sentence:
    """A template such as "{name} is absent." and the values that fill it."""

    template: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return say(self.template, **self.values)


class _Words(Formatter):
    """Knows "{count:layer|layers}" besides Python's own formats: the first for one, the second for all else.

    A sentence as a value is said with it, also as the plain values that events and files hold it as.
    """

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, dict):
            value = say(value["template"], **value["values"])
        one, bar, many = spec.partition("|")
        if bar:
            return one if str(value) == "1" else many
        return super().format_field(value, spec)


_FORMAT = _Words()


def say(template: str, **values: Any) -> str:
    """The sentence in the chosen language. Without values the template is taken as it is, braces included."""
    translated = _catalog(language()).get(template, template)
    return _FORMAT.vformat(translated, (), values) if values else translated


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a sentence without any Sentence in them, as files hold them."""
    return asdict(Sentence("", values))["values"]


def language() -> str:
    """The code of the language in use: what was chosen, else LATHE_LANGUAGE, else the system's."""
    if _chosen:
        return _chosen
    wanted = os.environ.get("LATHE_LANGUAGE") or locale.getlocale()[0] or "en"
    return "zh_CN" if wanted.lower().startswith(("zh", "chinese")) else "en"


def choose_language(code: str) -> None:
    """Use `code` from now on; an empty string follows the system again."""
    global _chosen
    assert not code or code in LANGUAGES, code
    _chosen = code


@cache
def _catalog(code: str) -> dict[str, str]:
    """All translations of one language, merged from its files in resources/translations."""
    if code == "en":
        return {}
    folder = files("resources") / "translations" / code
    merged: dict[str, str] = {}
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.name.endswith(".json"):
            merged |= json.loads(part.read_text(encoding="utf-8"))
    return merged
