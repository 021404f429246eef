"""Why an engine ended, told from its last lines: vLLM's refusals as sentences with a next step.

The sentences stand in refusals.py.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from workbench.engine.refusals import ROWS
from workbench.words import Sentence

PREFIX = re.compile(r"^(?:\([^)]*pid=\d+\) ?)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
ERROR = re.compile(r"^\s*(?:[\w.]*(?:Error|Exception|Interrupt|Refused)\b.*|Value error, .*|\S+: error: .*)")
WRAPPERS = re.compile(
    r"initialization failed|See stack trace|Application startup failed|EngineDeadError|validation error for|"
    r"Error in [\w ]+ stream generator"
)
KILLED, ASKED_TO_END = 137, 143
DIED = re.compile("engine core exited unexpectedly|EngineDeadError")


class Cause(NamedTuple):
    """What happened, and what to do. Both sentences carry the same values."""

    sentence: Sentence
    hint: Sentence


def cause(lines: Iterable[str], code: int | None) -> Cause:
    """The cause that the lines tell; without a known one, the status and the line that looks most like it.

    A `code` of None: the server still runs, but its engine is dead.
    """
    lines = list(lines)
    if found := known(lines):
        return found
    if code == KILLED:
        return _row(
            Sentence("The engine was killed."),
            Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
        )
    if code == ASKED_TO_END:
        return _row(
            Sentence("The engine was asked to end from elsewhere."),
            Sentence("By `lathe ledger`, another window or the system; start it again when it shall run."),
        )
    line = cause_line(lines)
    died = code is None or any(map(DIED.search, lines))
    if died and not line:
        return _row(
            Sentence("The engine's core was killed."),
            Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
        )
    if died:
        return _row(Sentence("The engine died: {line}"), Sentence("The log has the rest."), line=line)
    if code == 0:
        return _row(Sentence("The engine ended by itself."), Sentence("Look at the end of its log."))
    if line:
        return _row(
            Sentence("The engine ended with status {code}: {line}"),
            Sentence("The log has the rest."),
            code=code,
            line=line,
        )
    return _row(Sentence("The engine ended with status {code}."), Sentence("Look at the end of its log."), code=code)


def known(lines: Iterable[str]) -> Cause | None:
    """The first row of the table that the lines match; None for a healthy log."""
    text = "\n".join(PREFIX.sub("", line) for line in lines)
    for pattern, sentence, hint in ROWS:
        if match := pattern.search(text):
            return _row(sentence, hint, **{name: _value(value) for name, value in match.groupdict().items()})
    return None


def cause_line(lines: Iterable[str]) -> str:
    """The last line that states an error and does not merely pass one on; empty when there is none."""
    stripped = (PREFIX.sub("", line).strip() for line in reversed(list(lines)))
    line = next((line for line in stripped if ERROR.match(line) and not WRAPPERS.search(line)), "")
    return re.sub(r" \[type=\w+, input_value=.*", "", line)


def _row(sentence: Sentence, hint: Sentence, **values: Any) -> Cause:
    return Cause(Sentence(sentence.template, values), Sentence(hint.template, values))


def _value(text: str) -> int | str:
    return int(text) if text.isdigit() else text
