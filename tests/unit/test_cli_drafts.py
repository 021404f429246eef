"""`lathe drafts` and what `lathe serve` makes of a choice of drafting, in processes of their own."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
from test_drafts import CPU, FACTS

from workbench.catalog.folder import inspect
from workbench.engine import drafts
from workbench.engine.profile import Profile


@pytest.fixture
def lathe(tmp_path):
    """Run `lathe` with arguments in an own home; its status, output and complaints."""

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "workbench.cli", *map(str, arguments)], capture_output=True, text=True, timeout=60,
            env={**os.environ, "LATHE_HOME": str(tmp_path / "home"), "LATHE_LANGUAGE": "en"},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_list_as_json(lathe, tmp_path, write_tiny):
    target = write_tiny("target")
    write_tiny("lib/sibling")
    code, out, _ = lathe("drafts", target, "--in", tmp_path / "lib", "--json")
    found = {each["name"]: each for each in json.loads(out)}
    assert code == 0 and set(found) == {"n-gram", "suffix", "sibling"}
    assert found["sibling"]["verdict"] == "poor" and found["sibling"]["cost"] == pytest.approx(1)
    assert "Not much smaller" in found["sibling"]["reasons"][0]
    code, out, _ = lathe("drafts", target, "--in", tmp_path / "lib")
    assert code == 0 and "n-gram" in out and "✓" in out and "–" in out


def test_serve_takes_the_method_from_the_head_and_refuses_what_does_not_fit(lathe, tmp_path, write_tiny):
    target = write_tiny("target")
    head = tmp_path / "head"
    write_tiny("head")
    config = {"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    stored = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps(stored | config))
    options = ("--draft-tokens", 3, "--draft-tokens-by-load", "4:3,16:1", "--draft-sampling", "probabilistic", "--show")
    code, out, err = lathe("serve", target, "--speculate", head, *options)
    assert code == 0, err
    words = shlex.split(out.replace('"$LATHE_KEY"', "key"))
    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "eagle3", "num_speculative_tokens": 3, "model": str(head), "draft_sample_method": "probabilistic",
        "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 16, 1], [17, 4096, 0]],
    }  # fmt: skip
    (head / "config.json").write_text(json.dumps(stored | config | {"hidden_size": 4096}))
    code, out, err = lathe("serve", target, "--speculate", head, "--show")
    assert code == 1 and not out and "reads states of width 4096; those of this model are 64 wide" in err


def test_an_older_engine_is_asked_for_its_methods(write_tiny):
    target, draft = inspect(write_tiny("target")), inspect(write_tiny("draft"))
    older = replace(FACTS, drafting=frozenset({"ngram", "eagle"}))
    candidate = drafts.judge(target, draft, Profile(target.folder), CPU, older)
    assert candidate.verdict == "refused" and "cannot draft with draft_model" in str(candidate.telling.sentence)
