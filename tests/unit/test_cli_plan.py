"""What the terminal tells of a plan, layer by layer, and the ways out that it takes."""

import json
import re

import pytest
from typer.testing import CliRunner

from workbench import cli_whatif, moments_kept
from workbench import recipe as recipes
from workbench.cli import app
from workbench.quant_events import WhatIf


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


@pytest.mark.parametrize("scope", [(), ("--all-blocks",)])
def test_what_was_tried_is_kept_for_all_that_loads_as_one(lathe, tiny, tmp_path, monkeypatch, scope):
    """The worker's answer is not what is asked here."""
    answer = WhatIf(
        1, "m", "gptq", 8, 32, True, (128, 64), 9000, -1.0, 1.0, (1,), (1,), (0.0,), 0, 0.1, 0.1, 0.2, 0.0, 0.0, 0.0,
        16, True, True, False, 0.1,
    )  # fmt: skip
    monkeypatch.setattr(cli_whatif, "_answer", lambda *asked: answer)
    monkeypatch.setattr(moments_kept, "gathered", lambda *asked: True)
    kept = tmp_path / "kept.json"
    module = "model.layers.0.mlp.gate_proj"
    code, _, error = lathe("whatif", tiny, module, "--bits", 8, "--group", 32, "--save", kept, *scope)
    assert code == 0, error
    rules = recipes.read(kept).rules
    assert len(rules) == 2 and all((rule.choice.bits, rule.choice.group_size) == (8, 32) for rule in rules)
    plan = json.loads(lathe("plan", tiny, "--recipe", kept, "--json")[1])
    eight = [each["name"] for each in plan["linears"] if each["bits"] == 8]
    blocks = (0, 1) if scope else (0,)
    assert eight == [f"model.layers.{block}.mlp.{leaf}_proj" for block in blocks for leaf in ("gate", "up")]
