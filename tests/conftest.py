"""What tests of every folder share: the tiny model F-TINY, and a machine of which little memory is free."""

from pathlib import Path

import pytest
import tiny as maker

from workbench import admission, memory
from workbench.memory import Measured, Room

GB = 10**9


@pytest.fixture
def tiny(tmp_path) -> Path:
    """F-TINY in bfloat16, one file."""
    return maker.write(tmp_path / "tiny")


@pytest.fixture
def write_tiny(tmp_path):
    """Writes variants of F-TINY, by default into `tiny` in the test's own folder; see tiny.write."""

    def write(name: str = "tiny", **options) -> Path:
        return maker.write(tmp_path / name, **options)

    return write


@pytest.fixture
def machine(monkeypatch):
    """10 GB are free, whatever runs; waiting looks often. Change `machine["free"]` at any time."""
    now = {"free": 10 * GB}
    monkeypatch.setattr(admission, "LOOK_S", 0.02)
    monkeypatch.setattr(admission, "SOON_S", 0.02)
    monkeypatch.setattr(memory, "measure", lambda roots: Measured({"cpu": Room("CPU", 24 * GB, now["free"])}, {}))
    return now
