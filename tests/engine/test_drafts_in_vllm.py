"""Every way to draft in real vLLM on this processor: the same greedy tokens as without, and refusals where we refuse.

The speculative configs are those that our own candidates make of themselves.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import in_vllm
import pytest
from compressed_tensors.quantization import QuantizationArgs
from moved_draft import write_moved
from tiny_heads import write_eagle, write_eagle3, write_medusa, write_with_mtp
from tiny_models import ATTENTION, MLP, write_packed, write_plain

from workbench import adaption
from workbench.catalog.devices import Device
from workbench.catalog.folder import inspect
from workbench.engine import drafts
from workbench.engine.facts import EngineFacts
from workbench.engine.fit import fit
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation, config
from workbench.errors import WorkbenchError
from workbench.quantization import adapt

CPU = Device("CPU", "cpu", 32 * 2**30, 16 * 2**30)
HERE = EngineFacts(sys.executable, "0.32.0", None, True, frozenset(), True, None)
CHOSEN = Speculation(tokens=3)
# What is drafted with, and how much of it must be accepted: a copy of the target always guesses right.
WORKING = {"small": 0, "copy": 1, "mixed": 1, "sampled": 1, "medusa": 0, "eagle": 0, "eagle3": 0, "packed": 0, "mtp": 0}
REFUSED = ("eagle3-path", "medusa beyond its heads", "suffix", "eagle3 of absent layers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target of four layers, and what could draft for it."""
    made = tmp_path_factory.mktemp("drafts")
    target = write_plain(made / "target", layers=4, tokenizer=True)
    write_plain(made / "small", layers=1, seed=3, tokenizer=True)
    write_moved(target, made / "moved")
    list(adapt.run(adaption.spec(adaption.plan(made / "moved", target), made / "copy"), made))
    write_medusa(made / "medusa", target)
    write_eagle(made / "one-layer")
    write_eagle3(made / "three-layers")
    write_eagle3(made / "absent-layers", layers=(1, 2, 9))
    shutil.copytree(made / "small", made / "eagle3-path" / "small")
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
    write_with_mtp(made / "glm")
    write_packed(target, made / "int4", {ATTENTION: args, MLP: args})
    return made


def chosen(folders: Path) -> dict[str, tuple[str, Speculation]]:
    """Name -> target and the choice of one way to draft."""

    def way(folder: str, **changes) -> tuple[str, Speculation]:
        return "target", replace(judged(folders, folder).speculation(CHOSEN), **changes)

    ways = {
        "small": way("small"), "copy": way("copy"), "mixed": way("moved"),
        "sampled": way("copy", sampling="probabilistic"), "medusa": way("medusa"),
        "eagle": way("one-layer"), "eagle3": way("three-layers"),
        "eagle3-path": way("eagle3-path/small"), "medusa beyond its heads": way("medusa", tokens=4),
        "suffix": ("target", Speculation("suffix", 3)), "eagle3 of absent layers": way("absent-layers"),
        "by load": way("copy", steps=((2, 3), (3, 1))), "none at this load": way("copy", steps=((2, 3),)),
    }  # fmt: skip
    return ways | {"packed": ("int4", ways["small"][1]), "mtp": ("glm", Speculation("mtp", 2))}


def judged(folders: Path, name: str) -> drafts.Candidate:
    target = inspect(folders / "target")
    return drafts.judge(
        target, inspect(folders / name), Profile(target.folder, speculation=CHOSEN, kv_gib=1), CPU, HERE
    )


@pytest.fixture(scope="module")
def answers(folders):
    """Name -> what vLLM answered; one child for all."""
    runs = [[f"plain {model}", str(folders / model), None] for model in ("target", "int4", "glm")]
    runs += [[name, str(folders / model), config(way)] for name, (model, way) in chosen(folders).items()]
    out = folders / "answers.json"
    return in_vllm.run("speculate_in_vllm.py", out, json.dumps(runs))[0]


@pytest.mark.parametrize("name", WORKING)
def test_drafting_changes_no_greedy_token(answers, folders, name):
    answer, plain = answers[name], answers[f"plain {chosen(folders)[name][0]}"]
    assert "error" not in answer, answer
    assert answer["tokens"] == plain["tokens"]
    assert answer["drafts"] > 0 and answer["accepted"] >= WORKING[name] * answer["drafted"]


@pytest.mark.parametrize("name", ["small", "copy", "medusa", "one-layer", "three-layers"])
def test_what_runs_was_not_refused_and_the_cache_is_as_large_as_we_said(answers, folders, name):
    candidate = judged(folders, name)
    assert candidate.verdict != "refused", candidate
    ran = answers[{"one-layer": "eagle", "three-layers": "eagle3"}.get(name, name)]
    told = next(each.sentence.values["tokens"] for each in candidate.reasons if "weights" in each.sentence.values)
    assert ran["kv_tokens"] == int(told.replace(",", "")) // 128 * 128
    assert ran["method"] == candidate.method


def test_own_layers_for_mtp_are_found_and_counted(answers, folders):
    model = inspect(folders / "glm")
    profile = Profile(model.folder, speculation=Speculation("mtp", 2), kv_gib=1)
    assert [each.method for each in drafts.listing(model, profile, [], CPU, HERE)] == ["ngram", "suffix", "mtp"]
    assert drafts.settle(profile, HERE) == profile
    assert answers["mtp"]["kv_tokens"] == fit(model, profile, CPU).tokens_that_fit // 128 * 128
    assert answers["mtp"]["accepted"] > 0


@pytest.mark.parametrize("name", REFUSED)
def test_vllm_fails_where_we_refuse(answers, folders, name):
    assert "error" in answers[name]
    model, way = chosen(folders)[name]
    with pytest.raises(WorkbenchError):
        drafts.settle(Profile(folders / model, speculation=way), HERE)


def test_fewer_tokens_are_drafted_at_load(answers):
    """Three prompts run at once: one token each, or none beyond two."""
    assert answers["by load"]["tokens"] == answers["none at this load"]["tokens"] == answers["plain target"]["tokens"]
    assert answers["by load"]["drafted"] == answers["by load"]["drafts"] > 0
    assert answers["none at this load"]["drafted"] == 0
