"""Packed checkpoints in real vLLM on this processor, against the float32 model that their packed weights stand for."""

import json
import shutil
from pathlib import Path

import in_vllm
import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs
from safetensors.torch import load_file, save_file
from tiny_models import ATTENTION, MLP, write_packed, write_plain

PROMPT = [5, 17, 200, 31, 99, 7, 63, 250, 12, 44, 301, 8]


def stored(bits: int, group: int, symmetric: bool = True, order: str | None = None) -> QuantizationArgs:
    """How a linear is stored; group 0 is one scale for each output channel."""
    if not group:
        return QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy="channel")
    return QuantizationArgs(num_bits=bits, symmetric=symmetric, group_size=group, strategy="group", actorder=order)


CASES = {
    "layered": {ATTENTION: stored(4, 32, symmetric=False), MLP: stored(4, 64)},
    "eight bits with biases": {ATTENTION: stored(8, 32, symmetric=False), MLP: stored(8, 64)},
    "channels": {ATTENTION: stored(4, 0), MLP: stored(8, 0)},
    "static order": {ATTENTION: stored(4, 32), MLP: stored(4, 32, order="static")},
    "three bits": {ATTENTION: stored(3, 32, symmetric=False), MLP: stored(3, 64)},
    "two bits": {ATTENTION: stored(2, 32, symmetric=False), MLP: stored(2, 64)},
    "layer 0 plain": {ATTENTION: stored(4, 32), MLP: stored(8, 32)},
}
LAYER_0 = tuple(f"model.layers.0.self_attn.{role}_proj" for role in "qkvo") + tuple(
    f"model.layers.0.mlp.{role}_proj" for role in ("gate", "up", "down")
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Case -> (the reference model, what vLLM answered); one child loads them all, vLLM imported once."""
    folder = tmp_path_factory.mktemp("checkpoints")
    references = {}
    for name, groups in CASES.items():
        plain = write_plain(folder / f"{name} plain", bias="biases" in name)
        references[name] = write_packed(plain, folder / name, groups, LAYER_0 if name == "layer 0 plain" else ())
    out = folder / "answers.json"
    shutil.copytree(folder / "three bits", folder / "with gaps")
    references["with gaps"] = None
    close_gaps(folder / "three bits" / "model.safetensors")
    runs = [*(str(folder / name) for name in (*CASES, "with gaps")), f"{folder / 'layered'}@bfloat16"]
    answered, log = in_vllm.run("load_in_vllm.py", out, json.dumps(PROMPT), *runs)
    found = {Path(run).name: answer for run, answer in answered.items()}
    return {name: (references[name.partition("@")[0]], answer) for name, answer in found.items()}, log


def close_gaps(path: Path) -> None:
    """Pack again what compressed-tensors 0.17 packed ten 3-bit values to a word, as it does from 0.19 on."""
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(".weight_packed")]:
        module = name.removesuffix("packed")
        rows, columns = tensors[module + "shape"].tolist()
        tensors[name] = _closed(tensors[name], columns)
        if (zero := tensors.get(module + "zero_point")) is not None:
            tensors[module + "zero_point"] = _closed(zero.T, rows).T.contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def _closed(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Each row as one long number, cut into words."""
    rows = []
    for words in packed.tolist():
        whole = sum(((words[at // 10] >> (3 * (at % 10))) & 7) << (3 * at) for at in range(count))
        rows.append([(whole >> (32 * at)) & 0xFFFFFFFF for at in range(-(-3 * count // 32))])
    return torch.tensor(rows).to(torch.uint32).view(torch.int32)


@torch.no_grad()
def expected(model: torch.nn.Module, tokens: int) -> tuple[list[float], list[int]]:
    """The log-probability of each prompt token after the first, and the greedy tokens after the prompt."""
    given = torch.tensor([PROMPT])
    logprobs = model(given).logits.log_softmax(-1)[0, :-1].gather(1, given[0, 1:, None])[:, 0]
    for _ in range(tokens):
        given = torch.cat([given, model(given).logits[:, -1:].argmax(-1)], dim=1)
    return logprobs.tolist(), given[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("name", CASES)
def test_vllm_computes_the_packed_weights(answers, name):
    model, answer = answers[0][name]
    assert "error" not in answer, answer
    logprobs, tokens = expected(model, 8)
    assert answer["given"] == pytest.approx(logprobs, abs=1e-3)
    assert answer["tokens"] == tokens
    assert answer["kernels"] == ["UnpackedLinearKernel"]  # float32: vLLM's own kernel has no product for it


def test_three_bits_with_gaps_in_their_words_are_refused_as_we_say(answers):
    assert "error" in answers[0]["with gaps"][1]


def test_the_packed_tensors_are_let_go(answers):
    assert [answer["packed"] for name, (_, answer) in answers[0].items() if name in CASES] == [[]] * len(CASES)


def test_half_precision_too_with_whichever_kernel_is_there(answers):
    model, answer = answers[0]["layered@bfloat16"]
    assert "error" not in answer, answer
    assert answer["given"] == pytest.approx(expected(model, 0)[0], abs=0.15)


def test_the_log_says_that_no_memory_is_saved_once_for_each_width(answers):
    log = answers[1]
    assert log.count("INT4 weights are unpacked at load") == 1
    assert log.count("INT8 weights are unpacked at load") == 1
