"""What the plugin says in the engine's log, and the sentence that the window makes of it."""

import re

from workbench.events import Note

# vLLM's processes import this too: no import that vLLM's environment may lack.
UNPACKED = "Lathe: INT{bits} weights are unpacked at load; no memory is saved on this processor"
FAILED = "Lathe: the engine plugin could not be set up: {reason}"

_UNPACKED = re.compile(re.escape(UNPACKED).replace(r"\{bits\}", r"(\d+)"))


def note(line: str) -> Note | None:
    """The note for one line of the engine's log; None when the line is not the plugin's."""
    if found := _UNPACKED.search(line):
        return Note(
            "INT{bits} weights are unpacked while loading: on this processor they save no memory.",
            {"bits": int(found[1])},
        )
    return None
