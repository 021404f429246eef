"""The configuration of a model, whose fields have other names in other families."""

from pathlib import Path
from typing import Any

from workbench import json_file
from workbench.errors import WorkbenchError


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder. Raises WorkbenchError when it is absent or no JSON object."""
    try:
        config = json_file.read(folder / "config.json")
        if not isinstance(config, dict):
            raise ValueError(type(config))
    except FileNotFoundError as error:
        raise WorkbenchError(
            "{name} has weights but no config.json.", "Copy config.json from the model's repository into the folder.",
            name=folder.name,
        ) from error  # fmt: skip
    except (OSError, ValueError, RecursionError) as error:
        raise WorkbenchError(
            "config.json of {name} cannot be read.", "Download or copy the file again.", name=folder.name
        ) from error
    return config


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of the language model; models that also see or hear nest them in `text_config`."""
    inner = config.get("text_config")
    return config | inner if isinstance(inner, dict) else config


def whole(config: dict[str, Any], *names: str) -> int | None:
    """The first of these fields that holds a whole number above zero."""
    return next((config[name] for name in names if type(config.get(name)) is int and config[name] > 0), None)


def first_text(value: Any) -> str:
    """The first entry of a list of names; empty where there is none."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else ""
