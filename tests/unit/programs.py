"""Programs that tests write: they start under any path, also one with spaces, which a #! line cannot hold."""

import shlex
import sys
from pathlib import Path


def write(path: Path, body: str) -> Path:
    """An executable at `path` that runs the Python `body` with its own arguments."""
    script = path.with_name(path.name + ".body.py")
    script.write_text(body, encoding="utf-8")
    path.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"\n', encoding="utf-8"
    )
    path.chmod(0o755)
    return path
