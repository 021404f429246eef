"""What the plugin says in the engine's log, and the sentence that the window makes of it."""

import re

from workbench.core_events import UsageOnly
from workbench.events import Note

# vLLM's processes import this too: no import that vLLM's environment may lack.
UNPACKED = "Lathe: INT{bits} weights are unpacked at load; no memory is saved on this processor"
FAILED = "Lathe: the engine plugin could not be set up: {reason}"
UNTAPPED = "Lathe: no map of the KV cache: {reason}"

_UNPACKED = re.compile(re.escape(UNPACKED).replace(r"\{bits\}", r"(\d+)"))
_UNTAPPED = re.compile(re.escape(UNTAPPED).replace(r"\{reason\}", "(.*)"))


def note(line: str) -> Note | None:
    """The note for one line of the engine's log; None when the line is not the plugin's."""
    if found := _UNPACKED.search(line):
        return Note(
            "INT{bits} weights are unpacked while loading: on this processor they save no memory.",
            {"bits": int(found[1])},
        )
    return None


def usage_only(line: str) -> UsageOnly | None:
    """What a line of the engine's log says of the tap's end; None when it says nothing of it."""
    found = _UNTAPPED.search(line)
    return UsageOnly("This engine's blocks cannot be read: {reason}", {"reason": found[1]}) if found else None
