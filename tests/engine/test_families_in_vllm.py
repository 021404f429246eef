"""Families other than Llama's in real vLLM on this processor, against our own reading of the packed weights."""

import json
from dataclasses import replace

import in_vllm
import pytest
import torch
from family_models import LATENT, write_family
from quantization_models import SCALED, quantized
from test_int4_in_vllm import PROMPT

from workbench.quantization.blocks import Skeleton
from workbench.recipe import KEEP, PRESETS, Choice, with_rules

# Experts in INT4 cannot run on a CPU.
WITHOUT_EXPERTS = with_rules(
    replace(PRESETS["layered"], attention=Choice(method="rtn", symmetric=False), mlp=Choice(method="rtn")),
    ("*.experts.*",),
    KEEP,
)
FAMILIES = {
    "phi3": SCALED, "gemma": SCALED, "gemma2": SCALED, "gemma3_text": SCALED, "glm4": SCALED,
    "deepseek_v2": WITHOUT_EXPERTS, "deepseek_v3": WITHOUT_EXPERTS,
}  # fmt: skip
TOKENS = [token % 256 for token in PROMPT]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Family -> (log-probabilities of the prompt by our reading, what vLLM answered); one child loads them all."""
    folder = tmp_path_factory.mktemp("families")
    for family, recipe in FAMILIES.items():
        sizes = LATENT if recipe is WITHOUT_EXPERTS else {}
        quantized(write_family(folder / f"{family} plain", family, **sizes), folder / family, recipe, threads=1)
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
