"""The user's own recipes: kept as readable files, listed beside the presets, carried in and out."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from workbench import cli, recipes_kept
from workbench import recipe as recipes
from workbench.errors import WorkbenchError
from workbench.recipe import LAYERED, PRESETS, Choice, Rule

MINE = replace(LAYERED, rules=(Rule("*.o_proj", Choice(bits=8)),), tensor_parallel=2)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATHE_LANGUAGE", "en")
    return tmp_path / "home"


def lathe(*words: str):
    return CliRunner().invoke(cli.app, ["recipes", *words], catch_exceptions=True)


def test_a_kept_recipe_is_found_by_its_name(home):
    kept = recipes_kept.keep(MINE, " my recipe ")
    assert kept.name == "my recipe" and recipes.load("my recipe") == kept == recipes_kept.named("my recipe")
    assert [(own.name, own.recipe) for own in recipes_kept.listing()] == [("my recipe", kept)]
    text = (home / "recipes" / "my recipe.json").read_text()
    assert "\n" in text and json.loads(text)["rules"][0]["pattern"] == "*.o_proj"
    assert not [file for file in (home / "recipes").iterdir() if file.suffix != ".json"]


@pytest.mark.parametrize("name", ["", "  ", "a/b", "..", ".hidden", "a\nb", "x" * 61, 'say "hi"'])
def test_names_that_cannot_be_a_file(name):
    with pytest.raises(WorkbenchError, match="cannot be a name") as caught:
        recipes_kept.keep(MINE, name)
    assert caught.value.hint and recipes_kept.listing() == ()


def test_nothing_is_overwritten_unasked():
    recipes_kept.keep(MINE, "mine")
    with pytest.raises(WorkbenchError, match="already"):
        recipes_kept.keep(LAYERED, "mine")
    with pytest.raises(WorkbenchError, match="preset"):
        recipes_kept.keep(MINE, "best", overwrite=True)
    assert recipes.load("mine").rules == MINE.rules and recipes.load("best") == PRESETS["best"]
    assert recipes_kept.keep(LAYERED, "mine", overwrite=True).rules == ()


def test_a_recipe_goes_out_and_comes_in_again(tmp_path):
    recipes_kept.write(replace(MINE, name="theirs"), tmp_path / "deep" / "shared.json")
    assert recipes_kept.bring(tmp_path / "deep" / "shared.json") == replace(MINE, name="theirs")
    recipes_kept.write(PRESETS["best"], tmp_path / "better.json")
    assert recipes_kept.bring(tmp_path / "better.json").name == "better"  # a preset's name is taken
    recipes_kept.remove("theirs")
    assert [own.name for own in recipes_kept.listing()] == ["better"]
    with pytest.raises(WorkbenchError, match="no recipe of yours"):
        recipes_kept.remove("theirs")


def test_a_damaged_file_is_told_and_hides_no_other(home):
    recipes_kept.keep(MINE, "mine")
    (home / "recipes" / "bad.json").write_text('{"mlp": {"bits": 5}}')
    bad, mine = recipes_kept.listing()
    assert bad.recipe is None and "Bits cannot be 5" in str(bad.error) and mine.recipe is not None
    assert recipes_kept.named("bad") is None
    with pytest.raises(WorkbenchError, match="Bits cannot be 5"):
        recipes.load("bad")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkbenchError, match="could not be written"):
        recipes_kept.write(MINE, tmp_path / "file" / "x.json")


def test_every_preset_has_a_title():
    assert list(recipes_kept.TITLES) == list(PRESETS)


def test_the_command_line_lists_keeps_and_writes(tmp_path):
    assert lathe("--export", "glm", str(tmp_path / "glm.json")).exit_code == 0
    assert recipes.read(tmp_path / "glm.json") == PRESETS["glm"]
    assert lathe("--save", str(tmp_path / "glm.json"), "--name", "mine").exit_code == 0
    again = lathe("--save", str(tmp_path / "glm.json"), "--name", "mine")
    assert isinstance(again.exception, WorkbenchError)
    assert lathe("--save", str(tmp_path / "glm.json"), "--name", "mine", "--replace").exit_code == 0
    listed = json.loads(lathe("--json").stdout)
    assert [each["name"] for each in listed] == [*PRESETS, "mine"] and listed[-1]["kind"] == "own"
    assert lathe("--remove", "mine").exit_code == 0 and recipes_kept.listing() == ()
