"""The window process stays light: it never loads what takes seconds and gigabytes."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm", "pandas", "workbench.quantization", "workbench.engine.plugin")


@pytest.mark.parametrize("module", ["ui.main_window", "ui.app", "workbench.jobs", "workbench.engine.serve"])
def test_importing_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_the_domain_knows_no_window():
    code = (
        "import sys, pkgutil, importlib, workbench, workbench.catalog.folder, workbench.jobs, workbench.runs\n"
        "print(*[name for name in sys.modules if name.split('.')[0] in ('PySide6', 'ui', 'pyqtgraph', 'qasync')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
