"""What the terminal tells of a plan, layer by layer, and the ways out that it takes."""

import json
import re

import pytest
from typer.testing import CliRunner

from workbench import recipe as recipes
from workbench.cli import app


@pytest.fixture
def lathe(tmp_path, monkeypatch):
    """Run `lathe` in a home of its own; its status, what it printed and the error that it ended with."""
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATHE_LANGUAGE", "en")

    def run(*arguments):
        done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, arguments)])
        return done.exit_code, done.output, done.exception

    return run


@pytest.fixture
def rules(tmp_path):
    """Write a recipe with these rules; the file."""

    def write(*given):
        made = {"rules": [{"pattern": pattern, "choice": choice} for pattern, choice in given]}
        file = tmp_path / "recipe.json"
        file.write_text(json.dumps(made), encoding="utf-8")
        return file

    return write


def test_every_layer_is_listed_with_its_shape_size_and_pattern(lathe, tiny, rules):
    file = rules(("*.o_proj", {"method": "awq", "bits": 8, "group_size": 32}))
    code, out, _ = lathe("plan", tiny, "--recipe", file, "--every")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("model.layers.")}
    _, listed, _ = lathe("plan", tiny, "--recipe", file, "--json")
    assert set(lines) == {entry["name"] for entry in json.loads(listed)["linears"]}
    line = lines["model.layers.1.self_attn.o_proj"]
    assert re.search(r"64 × 128 +awq 8 +32 +symmetric, clip, scale .*\*\.o_proj", line)


def test_a_way_out_is_taken_by_its_number_and_kept(lathe, tiny, rules, tmp_path):
    file, kept = rules(("*.q_porj", {"bits": 8}), ("*.o_proj", {"bits": 8, "group_size": 32})), tmp_path / "kept.json"
    code, out, _ = lathe("plan", tiny, "--recipe", file)
    assert code == 1 and "1 · Use *.q_proj" in out and "2 · Leave the rule *.q_porj out" in out
    code, _, _ = lathe("plan", tiny, "--recipe", file, "--fix", 2, "--save", kept)
    assert code == 0 and [rule.pattern for rule in recipes.read(kept).rules] == ["*.o_proj"]
    code, _, error = lathe("plan", tiny, "--recipe", file, "--fix", 9)
    assert code == 1 and "no way out numbered 9" in str(error)


@pytest.mark.parametrize("module", ["down_proj", "model.layers.9.mlp.down_proj"])
def test_a_layer_that_is_not_there_is_told_with_the_one_that_was_meant(lathe, tiny, module):
    code, _, error = lathe("whatif", tiny, module)
    assert code == 1 and module in str(error) and "mlp.down_proj" in error.hint
