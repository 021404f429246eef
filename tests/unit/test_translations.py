"""Every sentence that the code can show has a Chinese one, with the same values in it."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

ROOT = Path(__file__).parents[2]
CHINESE = ROOT / "resources" / "translations" / "zh_CN"

# Which arguments of which calls are templates, by position and by name.
TEMPLATES = {
    "say": (0,),
    "bind": (1,),
    "Sentence": (0,),
    "Stage": (0,),
    "Note": (0, "message"),
    "UsageOnly": (0, "reason"),
    "Failed": (0, 1, "message", "hint"),
    "Checked": (0, 2),
    "ReplyFailed": (0, 1, "message", "hint"),
    "WorkbenchError": (0, 1, "hint"),
    "option": (1,),
    "label": (0,),
    "button": (0,),
    "Card": (0,),
    "Badge": (0,),
    "Figure": (0,),
    "Fold": (0,),
    "EmptyState": (1, 2, "hint"),
    "Station": (1,),
    "Action": (1,),
    "set_title": (0,),
    "set_primary": (0,),
}


def sources() -> list[Path]:
    return sorted(path for package in ("workbench", "ui") for path in (ROOT / package).rglob("*.py"))


def literals(node: ast.expr | None) -> Iterator[str | ast.JoinedStr]:
    """The strings an argument may be; an f-string comes as its node, because it can never be translated."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield node
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from literals(value)


def name_of(call: ast.Call, errors: set[ast.Call]) -> str:
    if call in errors:
        return "WorkbenchError"
    match call.func:
        case ast.Name(name):
            return name
        case ast.Attribute(ast.Name("icons"), "bind"):
            return ""
        case ast.Attribute(_, name):
            return name
    return ""


def parsed(path: Path) -> ast.Module:
    text = path.read_text(encoding="utf-8")
    try:
        return ast.parse(text)
    except SystemError:  # CPython before 3.11.8 loses count of its depth now and then (gh-106905); not twice in a row
        return ast.parse(text)


def templates(path: Path) -> Iterator[tuple[str | ast.JoinedStr, int]]:
    """Each template of a file with its line."""
    tree = parsed(path)
    errors = set()  # super().__init__ of an error class is a WorkbenchError call, too
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef) and any("WorkbenchError" in ast.unparse(base) for base in made.bases):
            errors |= {
                call
                for call in ast.walk(made)
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__"
            }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        for place in TEMPLATES.get(name_of(call, errors), ()):
            if isinstance(place, int):
                argument = call.args[place] if place < len(call.args) else None
            else:
                argument = next((each.value for each in call.keywords if each.arg == place), None)
            for template in literals(argument):
                yield template, call.lineno


def values_in(template: str) -> list[str]:
    return sorted(
        {name.split(".")[0].split("[")[0] for _, name, _, _ in Formatter().parse(template) if name is not None}
    )


def has_words(template: str) -> bool:
    """Whether anything in it needs translating."""
    return any(
        letter.isalpha()
        for text, _, spec, _ in Formatter().parse(template)
        for letter in text + (spec if spec and "|" in spec else "")
    )


def catalog() -> dict[str, str]:
    merged: dict[str, str] = {}
    for part in sorted(CHINESE.glob("*.json")):
        merged |= json.loads(part.read_text(encoding="utf-8"))
    return merged


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_template_is_translated(path):
    known = catalog()
    wrong = []
    for template, line in templates(path):
        if isinstance(template, ast.JoinedStr):
            wrong.append(f"{line}: an f-string cannot be translated: {ast.unparse(template)}")
        elif has_words(template) and template not in known:
            wrong.append(f"{line}: no translation: {template!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", sorted(CHINESE.glob("*.json")), ids=lambda part: part.name)
def test_values_are_the_same_in_both_languages(part):
    wrong = [
        f"{english!r} -> {chinese!r}"
        for english, chinese in json.loads(part.read_text(encoding="utf-8")).items()
        if values_in(english) != values_in(chinese) or not chinese.strip()
    ]
    assert not wrong, "\n".join(wrong)


def test_a_count_of_one_has_its_own_noun():
    plain = re.compile(r"\{(count|more|slots|words|turns|samples)\} (?!of\b)([\w-]+ )?[\w-]+s\b(?! such)")
    assert not [template for template in catalog() if plain.search(template)]


def test_a_sentence_has_one_translation_in_all_files():
    said = defaultdict(set)
    for part in CHINESE.glob("*.json"):
        for english, chinese in json.loads(part.read_text(encoding="utf-8")).items():
            said[english].add(chinese)
    assert not {english: chinese for english, chinese in said.items() if len(chinese) > 1}


def test_the_scan_sees_what_it_should(tmp_path):
    source = tmp_path / "source.py"
    source.write_text(
        "say('a b')\nlanguage.bind(x.setText, 'c d')\nicons.bind(x.setIcon, 'no')\nWorkbenchError('e', 'f', v=1)\n"
        "class E(WorkbenchError):\n    def __init__(self):\n        super().__init__('g', hint='h')\n"
        "button('i' if x else 'j')\nsay(f'{k}')\nEmptyState('icon', 'l', 'm')\n"
    )
    found = [each for each, _ in templates(source)]
    assert sorted(each for each in found if isinstance(each, str)) == [
        "a b", "c d", "e", "f", "g", "h", "i", "j", "l", "m",
    ]  # fmt: skip
    assert sum(isinstance(each, ast.JoinedStr) for each in found) == 1
