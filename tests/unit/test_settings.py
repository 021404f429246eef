"""The settings' file: what it holds is taken, what it cannot mean is not."""

import json

import pytest

from workbench import paths, settings
from workbench.settings import Settings


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


def test_what_is_saved_comes_back():
    kept = Settings(theme="light", model_folders=("/a", "/b"), unload_idle=15)
    settings.save(kept)
    assert settings.load() == kept


@pytest.mark.parametrize("wrong", ["15", 1.5, None, True, [15]])
def test_minutes_that_are_no_whole_number_are_left_out(wrong):
    (paths.home() / "settings.json").write_text(json.dumps({"theme": "dark", "unload_idle": wrong, "later": 1}))
    assert settings.load() == Settings(theme="dark", unload_idle=0)
