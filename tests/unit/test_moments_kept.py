"""Which statistics belong to which weights and text, and how the space they take stays bounded."""

import os
import shutil
from dataclasses import replace

import pytest
import tiny as maker

from workbench import moments_kept
from workbench.errors import WorkbenchError
from workbench.recipe import KEEP, PRESETS

RECIPE = PRESETS["layered"]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


def test_the_place_follows_weights_and_calibration_and_nothing_else(tmp_path):
    model = maker.write(tmp_path / "m")
    place = moments_kept.folder_of(model, RECIPE)
    assert moments_kept.folder_of(model, replace(RECIPE, attention=KEEP, samples=999)) == place
    for other in (replace(RECIPE, seed=1), replace(RECIPE, length=256), replace(RECIPE, samples=4)):
        assert moments_kept.folder_of(model, other) != place
    moved = shutil.copytree(model, tmp_path / "moved")  # with its times
    assert moments_kept.folder_of(moved, RECIPE) == place
    os.utime(model / "model.safetensors", ns=(1, 1))
    assert moments_kept.folder_of(model, RECIPE) != place


def test_a_text_that_is_gone_is_a_sentence(tmp_path):
    model = maker.write(tmp_path / "m")
    with pytest.raises(WorkbenchError, match="cannot be read"):
        moments_kept.folder_of(model, replace(RECIPE, calibration_file=str(tmp_path / "no.txt")))


def test_the_oldest_make_room_and_the_own_place_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(moments_kept, "LIMIT_BYTES", 350)
    places = [moments_kept._all() / name for name in ("old", "own", "new")]
    for age, place in enumerate(places):
        place.mkdir()
        (place / "block").write_bytes(b"x" * 100)
        os.utime(place / "block", (age, age))
    moments_kept.make_room(places[1], 150)
    assert [place.exists() for place in places] == [True, True, True]
    moments_kept.make_room(places[1], 200)
    assert [place.exists() for place in places] == [False, True, True]


def test_too_little_space_is_said_in_bytes(monkeypatch):
    monkeypatch.setattr(moments_kept, "_free", lambda: 5)
    with pytest.raises(WorkbenchError, match="need 10 bytes, but only 5 bytes"):
        moments_kept.check_space(10)
