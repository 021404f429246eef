"""What tests of every folder share: the tiny model F-TINY."""

from pathlib import Path

import pytest
import tiny as maker


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
