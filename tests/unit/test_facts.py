"""What an interpreter's vLLM is asked: of the packages that an engine of it would load."""

import sys

from workbench.engine import facts


async def test_what_only_pythonpath_holds_counts_as_installed(tmp_path, monkeypatch):
    before = await facts.ask(sys.executable)
    for name in ("arctic_inference", "ray"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not before.suffix, "the test needs an interpreter without it"
    found = await facts.ask(sys.executable)
    assert (found.suffix, found.ray, found.version) == (True, True, before.version)
