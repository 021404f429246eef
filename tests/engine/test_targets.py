"""Layers fitted to the original's outputs: the closed form against least squares, and whole runs."""

import random
import string
from dataclasses import replace

import pytest
import torch
from family_models import write_family
from quantization_models import quantized, write_model

from workbench import recipe
from workbench.events import Note
from workbench.quant_events import ModuleDone
from workbench.quantization import precision, targets
from workbench.quantization.blocks import Skeleton
from workbench.quantization.moments import Moments
from workbench.quantization.targets import Lack, moved


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(4000, 32) @ (torch.eye(32) + 0.1 * torch.randn(32, 32))


def gathered(inputs, missing):
    moments, lack = Moments(inputs.shape[1], inputs.device), Lack(missing.shape[1], inputs.shape[1], inputs.device)
    for at in range(0, len(inputs), 700):
        moments.add(inputs[at : at + 700])
        lack.add(missing[None, at : at + 700], inputs[None, at : at + 700])
    return lack.matrix, moments.matrix, moments.tokens


def test_moved_is_the_least_squares_weight(inputs, monkeypatch):
    monkeypatch.setattr(targets, "DAMPING", 1e-7)
    weight, wanted = torch.randn(8, 32), torch.randn(4000, 8) + inputs[:, :8]
    found = moved(weight, *gathered(inputs, wanted - inputs @ weight.T))
    right = torch.linalg.lstsq(inputs, wanted).solution.T
    share = 1 - 32 / 4000
    assert torch.allclose(found, weight + share * (right - weight), atol=1e-3)


def test_the_fewer_tokens_the_less_a_weight_moves(inputs):
    weight, wanted = torch.randn(8, 32), torch.randn(4000, 8) + inputs[:, :8]
    lack, H, _ = gathered(inputs, wanted - inputs @ weight.T)
    for tokens in (33, 100, 1000, 100_000):
        damped = H + 32 / tokens * torch.diagonal(H).mean() * torch.eye(32)
        right = weight + (1 - 32 / tokens) * torch.linalg.solve(damped.double(), lack.T.double()).T
        assert torch.allclose(moved(weight, lack, H, tokens).double(), right, atol=1e-4)
    far = [(moved(weight, lack, H, tokens) - weight).norm().item() for tokens in (32, 33, 100, 1000, 100_000)]
    assert far[0] == 0 and far == sorted(far) and far[1] < 0.1 * far[-1]


def test_what_lacks_nothing_stays(inputs):
    weight = torch.randn(8, 32)
    assert torch.equal(moved(weight, *gathered(inputs, torch.zeros(4000, 8))), weight)


def test_too_few_tokens_and_dead_inputs_move_nothing_wild(inputs):
    weight = torch.randn(8, 32)
    few = inputs[:30]
    assert moved(weight, *gathered(few, torch.randn(30, 8))) is weight
    inputs[:, 3] = 0
    found = moved(weight, *gathered(inputs, torch.randn(4000, 8)))
    assert torch.isfinite(found).all() and torch.equal(found[:, 3], weight[:, 3])
    nothing = torch.zeros(4000, 32)
    assert torch.equal(moved(weight, *gathered(nothing, torch.randn(4000, 8))), weight)


def text_of(seed: int) -> str:
    """Words without a pattern, so that the inputs of a tiny random model go everywhere."""
    chance = random.Random(seed)
    return "".join(chance.choices(string.printable[:94] + " ", k=2000))


def recipes(tmp_path, size=64, **changes):
    text = tmp_path / "text.txt"
    text.write_text("\n<|document|>\n".join(map(text_of, range(6))))
    plain = recipe.with_group_size(recipe.PRESETS["gptq"], size)
    parts = {part: replace(getattr(plain, part), bits=2) for part in ("attention", "mlp")}
    return replace(plain, calibration_file=str(text), length=64, **parts, **changes)


def leaving(folder, ids):
    skeleton = Skeleton(folder, torch.device("cpu"))
    state = [skeleton.embed([ids])[0]]
    list(targets.through(skeleton, len(skeleton), state))
    return state[0]


def assert_nearer(source, folder, share, size):
    """The end of the model comes nearer to the original's; returns what the run told that was fitted to it."""
    for aim in ("own", "original"):
        told = quantized(source, folder / aim, recipes(folder, size, targets=aim))
    held = torch.tensor(list(text_of(99).encode())).view(-1, 50)
    right = leaving(source, held)
    wrong = {aim: (leaving(folder / aim, held) - right).square().mean() for aim in ("own", "original")}
    assert wrong["original"] < share * wrong["own"], wrong
    return [event for event in told if isinstance(event, Note) and "Experts are not fitted" in event.message]


def test_blocks_end_nearer_to_the_original_when_they_are_fitted_to_it(tmp_path):
    source = write_model(tmp_path / "model", num_hidden_layers=4)
    assert_nearer(source, tmp_path, 0.95, size=64)


@pytest.mark.parametrize("family", ["gemma2", "cohere", "qwen2_moe", "deepseek_v3"])
def test_other_families_are_fitted_by_their_structure(tmp_path, family):
    source = write_family(tmp_path / "model", family)
    told = assert_nearer(source, tmp_path, 1.0, size=32)
    assert len(told) == (family in ("qwen2_moe", "deepseek_v3"))


def test_the_walked_way_fits_as_the_short_one(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: False)  # the walked way never does
    source, chosen = write_model(tmp_path / "model"), recipes(tmp_path, targets="original")
    short = quantized(source, tmp_path / "short", chosen)
    monkeypatch.setattr(Skeleton, "_is_usual", lambda self: False)
    walked = quantized(source, tmp_path / "walked", chosen)
    errors = [
        {event.name: event.output_error for event in events if isinstance(event, ModuleDone)}
        for events in (short, walked)
    ]
    assert len(errors[0]) == 14 and errors[1] == pytest.approx(errors[0], rel=1e-3)
