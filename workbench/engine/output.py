"""What an engine prints, line by line, as events; and from its last lines why it ended."""

import re
import time
from collections import deque
from collections.abc import Iterator

from workbench.engine import plugin_words
from workbench.engine.causes import cause, cause_line
from workbench.engine.printed import Printed
from workbench.engine.start import Course
from workbench.engine_events import EngineLog, EngineMemory, EnginePhase
from workbench.events import Event, Failed, Note

KEPT_LINES = 2000  # a refusal stands above some hundred lines of tracebacks
SHOWN_LINES = 40

# What vLLM prints on a GPU of its choice; the second form when the profile made it.
ATTENTION = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention backend out of|backend\.$)")


class Output:
    """The output of one run. `heard_s` is when its last line came, by the monotonic clock."""

    def __init__(self):
        self.heard_s = time.monotonic()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._printed = Printed()
        self._course = Course()
        self._notes: list[Note] = []

    @property
    def memory(self) -> EngineMemory:
        """What it has printed of its memory so far."""
        return self._printed.memory

    @property
    def usage_only(self) -> bool:
        """Whether it said why it does not report its blocks."""
        return any(map(plugin_words.usage_only, self._lines))

    def read(self, line: str) -> Iterator[Event]:
        """The events of one more line."""
        self.heard_s = time.monotonic()
        self._lines.append(line)
        for note in filter(None, (plugin_words.note(line), _attention(line))):
            if note not in self._notes:  # each worker says it
                self._notes.append(note)
                yield note
        yield EngineLog(line)
        if usage_only := plugin_words.usage_only(line):
            yield usage_only
        if memory := self._printed.take(line):
            yield memory
        if phase := self._course.entered(line):
            yield EnginePhase(phase, self.heard_s)

    def failed(self, code: int | None) -> Failed:
        """Why it ended with this status, or None: why it answers no more."""
        sentence, hint = cause(self._lines, code)
        details = "\n".join([cause_line(self._lines), "", *list(self._lines)[-SHOWN_LINES:]]).strip()
        values = {**sentence.values, **hint.values} | ({} if code is None else {"code": code})
        return Failed(sentence.template, hint.template, values, details)


def _attention(line: str) -> Note | None:
    """The attention backend that the engine really uses, where it says so."""
    found = ATTENTION.search(line)
    return Note("Attention backend: {name}", {"name": found[1]}) if found else None
