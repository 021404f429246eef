"""Families other than Llama's in real vLLM on this processor, against our own reading of the packed weights."""

import json

import in_vllm
import pytest
import torch
from family_models import write_family
from quantization_models import SCALED, quantized
from test_int4_in_vllm import PROMPT

from workbench.quantization.blocks import Skeleton

FAMILIES = ("phi3", "gemma", "gemma2", "gemma3_text", "glm4")  # INT4 experts cannot run on a CPU
TOKENS = [token % 256 for token in PROMPT]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Family -> (log-probabilities of the prompt by our reading, what vLLM answered); one child loads them all."""
    folder = tmp_path_factory.mktemp("families")
    for family in FAMILIES:
        quantized(write_family(folder / f"{family} plain", family), folder / family, SCALED, threads=1)
    out = folder / "answers.json"
    runs = [str(folder / family) for family in FAMILIES]
    found, _ = in_vllm.run("load_in_vllm.py", out, json.dumps(TOKENS), *runs)
    return {family: (expected(folder / family), found[str(folder / family)]) for family in FAMILIES}


@torch.no_grad()
def expected(folder):
    skeleton = Skeleton(folder, torch.device("cpu"))
    skeleton.prove()
    (hidden,) = skeleton.embed([torch.tensor([TOKENS])])
    for index in range(len(skeleton)):
        hidden = skeleton.forward(skeleton.load(index), hidden)
    norm, head = skeleton.last()
    logits = skeleton.logits(norm(hidden) @ head.T).log_softmax(-1)
    return logits[0, :-1].gather(1, torch.tensor(TOKENS)[1:, None])[:, 0].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_vllm_computes_what_we_wrote(answers, family):
    right, answer = answers[family]
    assert "error" not in answer, answer
    assert answer["given"] == pytest.approx(right, abs=2e-3)
    assert answer["kernels"] == ["UnpackedLinearKernel"]
