"""JSON files, which anybody may have written or damaged."""

import json
from pathlib import Path
from typing import Any


def read(path: Path, encoding: str = "utf-8") -> Any:
    """What the file holds. Raises OSError, and ValueError where it is no JSON or nested too deeply to be read."""
    try:
        return json.loads(path.read_text(encoding=encoding))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
