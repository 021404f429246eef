"""A draft's rows for tokens in its target's order: the job that copies it, and what it refuses."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from moved_draft import write_moved
from safetensors.torch import load_file, save_file
from tiny_models import write_plain
from transformers import AutoModelForCausalLM

from workbench import adaption
from workbench.catalog.folder import inspect
from workbench.catalog.vocabulary import compare, read
from workbench.errors import WorkbenchError
from workbench.events import Finished
from workbench.quantization import adapt


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_plain(tmp_path_factory.mktemp("adapt") / "target", tokenizer=True)


@pytest.fixture(scope="module")
def draft(target):
    return write_moved(target, target.with_name("draft"))


def copy(draft: Path, target: Path, output: Path) -> list:
    return list(adapt.run(adaption.spec(adaption.plan(draft, target), output), output.parent))


def test_unknown_tokens_have_the_middle_row_which_never_scores_highest():
    weight = torch.randn(6, 4)
    found = adapt.ordered(weight, (5, None, 0))
    assert torch.equal(found[[0, 2]], weight[[5, 0]]) and torch.allclose(found[1], weight.mean(0))
    states = torch.randn(100, 4)
    assert bool((states @ found[1] < (states @ weight.T).amax(1)).all())
    assert torch.allclose(adapt.ordered(torch.arange(4.0), (3, None)), torch.tensor([3.0, 1.5]))


def test_the_copy_is_the_target_again(target, draft, tmp_path):
    """The draft was made of the target by moving and padding its rows: the copy undoes that, to the last bit."""
    output = tmp_path / "copy"
    (draft / "LICENSE").write_text("the draft's")
    (target / "LICENSE").write_text("the target's")
    *_, last = copy(draft, target, output)
    assert (output / "LICENSE").read_text() == "the draft's"
    assert (output / "tokenizer.json").read_bytes() == (target / "tokenizer.json").read_bytes()
    assert isinstance(last, Finished)
    assert [each.name for each in tmp_path.iterdir()] == ["copy"], "nothing is left beside it"
    made, theirs = load_file(output / "model.safetensors"), load_file(target / "model.safetensors")
    assert made.keys() == theirs.keys() and all(torch.equal(made[name], theirs[name]) for name in theirs)
    match = compare(read(target), read(output))
    assert (match.kind, inspect(output).vocab) == ("same", inspect(target).vocab)
    prompt = torch.tensor([[5, 17, 200, 31]])
    scores = [AutoModelForCausalLM.from_pretrained(folder)(prompt).logits for folder in (output, target)]
    assert torch.equal(*scores)


def test_a_copy_that_scores_otherwise_is_not_kept(target, draft, tmp_path, monkeypatch):
    monkeypatch.setattr(adapt, "ordered", lambda tensor, rows: tensor[torch.randperm(len(rows))].contiguous())
    with pytest.raises(WorkbenchError, match="does not score"):
        copy(draft, target, tmp_path / "copy")
    assert not list(tmp_path.iterdir())


def test_too_little_memory_to_prove_it_is_said_before(target, draft, tmp_path, monkeypatch):
    monkeypatch.setattr(adapt.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(WorkbenchError, match="To prove the copy takes"):
        copy(draft, target, tmp_path / "copy")
    assert not list(tmp_path.iterdir())


def test_what_needs_no_copy_or_can_have_none_is_said(target, draft, tmp_path):
    with pytest.raises(WorkbenchError, match="as it is"):
        adaption.plan(target, target)
    other = write_plain(tmp_path / "other", tokenizer=True)
    words = json.loads((other / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    words["model"]["vocab"] = dict(zip(vocab, reversed(vocab.values()), strict=True))
    (other / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(WorkbenchError, match="no copy can"):
        adaption.plan(other, target)
    (other / "tokenizer.json").unlink()
    with pytest.raises(WorkbenchError, match="not listed"):
        adaption.plan(other, target)


def test_packed_rows_are_refused(target, tmp_path):
    packed = write_moved(target, tmp_path / "packed")
    tensors = load_file(packed / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int32)
    save_file(tensors, packed / "model.safetensors")
    with pytest.raises(WorkbenchError, match="is quantized"):
        adaption.plan(packed, target)
