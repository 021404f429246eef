"""Tuning of the whole model: the gradient against autograd's own, and what a run changes."""

from dataclasses import replace

import torch
from quantization_models import TEXT, quantized, write_model
from safetensors.torch import load_file
from torch.nn.functional import kl_div, log_softmax

from workbench import recipe
from workbench.events import Note, QualityMeasured
from workbench.measure import quality
from workbench.quantization import calibration, tuning
from workbench.quantization.blocks import Skeleton
from workbench.quantization.lessons import Lessons


def test_a_lesson_gives_the_gradient_of_the_divergence(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.quantization.lessons.ROWS", 7)
    skeleton = Skeleton(write_model(tmp_path / "model"), torch.device("cpu"))
    ids = torch.randint(256, (2, 15), generator=torch.Generator().manual_seed(0))
    right = [skeleton.load(index) for index in range(2)]
    embedded = skeleton.embed([ids])[0]
    leaving = skeleton.forward(right[1], skeleton.forward(right[0], embedded))
    blocks = [skeleton.load(index) for index in range(2)]
    weights = [block.mlp.down_proj.weight for block in blocks]
    for weight in weights:
        weight.mul_(1.3).requires_grad_()
    lessons = Lessons(skeleton, [ids], [leaving], torch.float32)
    lessons.learn(blocks, 0)

    norm, head = skeleton.last()
    ours = norm(skeleton.forward(blocks[1], skeleton.forward(blocks[0], embedded))) @ head.T
    theirs = norm(leaving) @ head.T
    divergence = kl_div(log_softmax(ours, -1), log_softmax(theirs, -1), log_target=True, reduction="sum") / ids.numel()
    for weight, gradient in zip(weights, torch.autograd.grad(divergence, weights), strict=True):
        assert torch.allclose(weight.grad, gradient, rtol=1e-3, atol=1e-6)
    assert abs(lessons.divergence(blocks, 0) - divergence.item()) < 1e-5


def test_a_tuned_model_answers_more_like_the_original(tmp_path):
    source = write_model(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("\n<|document|>\n".join(f"{number} {TEXT}" * 3 for number in range(40)))
    plain = recipe.with_group_size(recipe.PRESETS["gptq"], 32)
    parts = {part: replace(getattr(plain, part), bits=2) for part in ("attention", "mlp")}
    plain = replace(plain, calibration_file=str(text), length=64, **parts)
    quantized(source, tmp_path / "plain", plain)
    told = quantized(source, tmp_path / "tuned", replace(plain, tune=2))
    note = next(event for event in told if isinstance(event, Note) and "Tuning" in event.message)
    assert note.level == "info" and note.values["after"] < 0.9 * note.values["before"]

    before, after = load_file(tmp_path / "plain/model.safetensors"), load_file(tmp_path / "tuned/model.safetensors")
    changed = {name.rpartition(".")[2] for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys() and changed == {"weight_scale", "weight"}
    assert all(
        "norm" in name for name in before if name.endswith(".weight") and not torch.equal(before[name], after[name])
    )
    skeleton, found = Skeleton(source, torch.device("cpu")), {}
    held = calibration.sequences([f"Once {TEXT}" * 20], calibration.tokenizer_of(source), 64, 2000)
    candidates = {name: Skeleton(tmp_path / name, torch.device("cpu")) for name in ("plain", "tuned")}
    for event in quality.compare(skeleton, candidates, held):
        if isinstance(event, QualityMeasured):
            found[event.name] = event.kl
    assert found["tuned"] < 0.95 * found["plain"]


def test_tuning_that_does_not_fit_or_wins_nothing_changes_nothing(tmp_path, monkeypatch):
    source = write_model(tmp_path / "model")
    plain = recipe.with_group_size(recipe.PRESETS["rtn"], 32)
    quantized(source, tmp_path / "plain", plain)
    right = (tmp_path / "plain/model.safetensors").read_bytes()
    monkeypatch.setattr(tuning, "SHARE_OF_MEMORY", 0.0)
    told = quantized(source, tmp_path / "large", replace(plain, tune=1))
    assert any("was not tuned" in event.message for event in told if isinstance(event, Note))
    assert (tmp_path / "large/model.safetensors").read_bytes() == right
    monkeypatch.undo()
    monkeypatch.setattr(tuning, "RATE", 0.5)
    told = quantized(source, tmp_path / "wild", replace(plain, tune=1))
    assert any("won nothing" in event.message for event in told if isinstance(event, Note))
    assert (tmp_path / "wild/model.safetensors").read_bytes() == right
