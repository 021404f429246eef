"""H28: the model's own sampling values win over what a request leaves open."""

import json

import pytest

from workbench.chat.defaults import NEUTRAL, in_force, of_model, open_values
from workbench.engine.sampling import Sampling

OWN = {"temperature": 0.2, "top_k": 1, "top_p": 0.01, "repetition_penalty": 1.1}


def test_what_changes_nothing_is_no_value_of_the_models_own(tmp_path):
    stored = OWN | {"min_p": 0.0, "do_sample": True, "eos_token_id": [2, 5], "top_k": 1}
    (tmp_path / "generation_config.json").write_text(json.dumps(stored))
    assert of_model(tmp_path) == OWN
    assert open_values(of_model(tmp_path)) == "top_p 0.01 · top_k 1 · repetition_penalty 1.1"


@pytest.mark.parametrize("text", [None, "{", "[1]", '{"top_k": "1", "top_p": null, "temperature": true}'])
def test_a_model_without_any(tmp_path, text):
    if text is not None:
        (tmp_path / "generation_config.json").write_text(text)
    assert of_model(tmp_path) == {}


def test_the_request_says_all_that_is_in_force():
    chosen = Sampling(max_tokens=9, temperature=1.0)
    assert in_force(chosen, OWN, True) == Sampling(9, 1.0, top_p=0.01, top_k=1, repetition_penalty=1.1)
    assert in_force(chosen, OWN, False) == Sampling(9, 1.0, top_p=1.0, top_k=0, repetition_penalty=1.0)
    assert in_force(Sampling(top_k=5), {"top_k": 1}, True).top_k == 5
    assert in_force(chosen, {}, True) == in_force(chosen, {}, False) == chosen
    assert in_force(chosen, NEUTRAL, False).chosen() == NEUTRAL | {"max_tokens": 9}
