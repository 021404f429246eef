"""What a choice of drafting tells the engine, and what makes no sense."""

from pathlib import Path

import pytest

from workbench.engine.speculation import Speculation, config, read_steps, written
from workbench.errors import WorkbenchError

HEAD = Path("/heads/one")


def test_ngram_is_told_its_window_and_nothing_else():
    assert config(Speculation(tokens=3)) == {
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4,
    }  # fmt: skip


@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3", "medusa", "mtp"])
def test_a_draft_or_head_is_named(method):
    assert config(Speculation(method, 2, HEAD)) == {
        "method": method, "num_speculative_tokens": 2, "model": str(HEAD),
    }  # fmt: skip


def test_suffix_and_own_layers_need_no_folder():
    assert config(Speculation("suffix", 8)) == {"method": "suffix", "num_speculative_tokens": 8}
    assert config(Speculation("mtp", 1)) == {"method": "mtp", "num_speculative_tokens": 1}


def test_tokens_by_load_become_the_engines_ranges_and_nothing_is_drafted_beyond():
    chosen = Speculation("draft_model", 4, HEAD, steps=((4, 4), (16, 1)))
    assert config(chosen)["num_speculative_tokens_per_batch_size"] == [[1, 4, 4], [5, 16, 1], [17, 4096, 0]]


def test_sampling_and_vocabularies_are_told_when_chosen():
    told = config(Speculation("draft_model", 4, HEAD, sampling="probabilistic"))
    assert told["draft_sample_method"] == "probabilistic"
    assert config(Speculation("draft_model", 4, HEAD, mixed=True))["use_heterogeneous_vocab"] is True
    assert config(Speculation("eagle3", 4, HEAD, parallel=True))["parallel_drafting"] is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "oracle"}, {"tokens": 0}, {"method": "draft_model"}, {"method": "eagle3"},
        {"lookup_min": 5, "lookup_max": 2}, {"steps": ((4, 5),)}, {"steps": ((4, 2), (4, 1))}, {"steps": ((0, 2),)},
        {"steps": ((4, -1),)}, {"method": "medusa", "draft": HEAD, "steps": ((4, 4),)},
        {"sampling": "probabilistic"}, {"mixed": True},
        {"method": "medusa", "draft": HEAD, "sampling": "probabilistic"},
        {"method": "draft_model", "draft": HEAD, "mixed": True, "sampling": "probabilistic"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_a_sentence(wrong):
    with pytest.raises(WorkbenchError):
        Speculation(**wrong)


def test_tokens_by_load_are_typed_and_read():
    assert read_steps("4:4, 16:1") == ((4, 4), (16, 1)) and written(((4, 4), (16, 1))) == "4:4,16:1"
    assert read_steps("") == ()
    for text in ("4", "4:x", "4:1:2"):
        with pytest.raises(WorkbenchError, match="at which load"):
            read_steps(text)
