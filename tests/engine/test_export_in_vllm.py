"""Exported folders in real vLLM on this processor, against the float32 model that their integers stand for.

What our own list says vLLM refuses on a CPU is put to it as well, in the same process.
"""

import json
import shutil
from pathlib import Path

import in_vllm
import pytest
import torch
from exporting import uniform, written
from safetensors.torch import load_file, save_file
from tiny_models import write_packed, write_plain

from workbench.catalog.folder import inspect
from workbench.engine import formats
from workbench.engine.facts import EngineFacts

PROMPT = [5, 17, 200, 31, 99, 7, 63, 250, 12, 44, 301, 8]
LOADED = {
    "awq": ("awq", (4, 32, False)), "awq symmetric": ("awq", (4, 64, True)), "awq rows": ("awq", (4, 0, True)),
    "gptq": ("gptq", (4, 32, True)), "gptq_v2": ("gptq_v2", (4, 64, True)), "gptq rows": ("gptq", (4, 0, True)),
}  # fmt: skip
HERE = EngineFacts("python", "0.32.0", None, True, frozenset(), True, None, amx=torch.cpu._is_amx_tile_supported())
EIGHT = {"integers for all": "int", "floats for all": "float"}
REFUSED = {"gptq eight bits": ("gptq", (8, 32, True)), "gptq zero points": ("gptq_v2", (4, 32, False))}


def write_eight(plain: Path, folder: Path, kind: str) -> Path:
    """Eight bits for weights and activations, one scale for each row and each token: as others publish them."""
    folder.mkdir()
    for part in plain.iterdir():
        shutil.copyfile(part, folder / part.name)
    tensors = load_file(plain / "model.safetensors")
    most, stored = (127, torch.int8) if kind == "int" else (448, torch.float8_e4m3fn)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        weight = tensors.pop(name).float()
        scale = weight.abs().amax(1, keepdim=True) / most
        rounded = (weight / scale).round() if kind == "int" else weight / scale
        tensors |= {name: rounded.to(stored), f"{name}_scale": scale}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shared = {"num_bits": 8, "type": kind, "symmetric": True}
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": f"{kind}-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": shared | {"strategy": "channel", "dynamic": False},
            "input_activations": shared | {"strategy": "token", "dynamic": True},
        }},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Name -> (the float32 model that the integers stand for, what vLLM answered in bfloat16); one child for all."""
    folder = tmp_path_factory.mktemp("exported")
    plain = write_plain(folder / "plain", bias=True, tokenizer=True)
    models = {}
    for name, (form, scheme) in (LOADED | REFUSED).items():
        models[name] = write_packed(plain, folder / "packed", uniform(*scheme))
        written(folder / "packed", form, name)
        shutil.rmtree(folder / "packed")
    for name, kind in EIGHT.items():
        models[name] = None
        write_eight(plain, folder / name, kind)
    out = folder / "answers.json"
    runs = [f"{folder / name}@bfloat16" for name in models] + [f"{folder / 'awq'}@float32"]
    answered, _ = in_vllm.run("load_in_vllm.py", out, json.dumps(PROMPT), *runs)
    found = {Path(run).name.removesuffix("@bfloat16"): answer for run, answer in answered.items()}
    return {name: (models.get(name), answer, folder / name) for name, answer in found.items()}


@torch.no_grad()
def logprobs(model: torch.nn.Module) -> list[float]:
    given = torch.tensor([PROMPT])
    return model(given).logits.log_softmax(-1)[0, :-1].gather(1, given[0, 1:, None])[:, 0].tolist()


@pytest.mark.parametrize("name", LOADED)
def test_vllm_computes_the_exported_weights(answers, name):
    model, answer, folder = answers[name]
    assert formats.refusal(inspect(folder).quantization, HERE) is None
    assert "error" not in answer, answer
    assert answer["given"] == pytest.approx(logprobs(model), abs=0.15)
    assert len(answer["tokens"]) == 8


@pytest.mark.parametrize("name", [*REFUSED, *EIGHT])
def test_vllm_refuses_what_we_say_it_refuses(answers, name):
    _, answer, folder = answers[name]
    refused = formats.refusal(inspect(folder).quantization, HERE)
    assert ("error" in answer) == (refused is not None), answer


def test_vllm_refuses_awq_in_float32(answers):
    """Why Serve chooses bfloat16 for this format on a CPU."""
    assert "float32 is not supported for quantization method" in answers["awq@float32"][1]["error"]
