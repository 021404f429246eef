"""Histograms before a run, quality against the original, and the check of what was written."""

import math
import time

import pytest
import torch
from quantization_models import quantized, write_model
from safetensors.torch import load_file, save_file

from workbench import plan, recipe
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import encode
from workbench.measure import quality
from workbench.quant_events import Histogram, QualityMeasured
from workbench.quantization import look, stats, verify
from workbench.quantization.blocks import Skeleton


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    source = write_model(folder / "model")
    quantized(source, folder / "int4", "best")
    return source, folder / "int4"


def test_the_histogram_of_a_tensor(pair):
    source, _ = pair
    name = "model.layers.1.mlp.up_proj"
    (found,) = look.run({"model": str(source), "module": name}, source)
    weight = load_file(source / "model.safetensors")[f"{name}.weight"]
    assert isinstance(found, Histogram) and sum(found.counts) == weight.numel() and found.shape == (128, 64)
    assert (found.low, found.high) == (weight.min().item(), weight.max().item())
    encode(found)
    with pytest.raises(WorkbenchError, match=r"layers\.9"):
        next(look.run({"model": str(source), "module": "layers.9"}, source))


@pytest.mark.parametrize(
    ("values", "not_finite"),
    [
        (torch.tensor([1.0, float("nan"), 2.0, float("inf"), -float("inf")]), 3),
        (torch.full((40,), 0.7), 0),
        (torch.zeros(8), 0),
        (torch.full((3,), float("nan")), 3),
        (torch.tensor([1e-44, 0.0, 3e38, -3e38]), 0),
    ],
)
def test_odd_tensors_have_a_histogram(values, not_finite):
    found = look.histogram("x", values)
    assert found.low < found.high and found.not_finite == not_finite
    assert sum(found.counts) == values.numel() - not_finite
    assert math.isfinite(found.kurtosis) and math.isfinite(found.outliers)
    encode(found)


def test_tails_are_seen():
    torch.manual_seed(0)
    normal = torch.randn(400_000)
    heavy = torch.where(torch.rand(400_000) < 0.01, normal * 12, normal)
    assert abs(stats.spread(normal).kurtosis) < 0.1 and stats.spread(heavy).kurtosis > 5
    assert stats.spread(heavy).outliers > 10 * stats.spread(normal).outliers
    far = torch.cat([normal, torch.tensor([5000.0])])
    found = look.histogram("x", far)
    assert found.high < 5000 and found.counts[-1] >= 1 and sum(found.counts) == 400_001


def test_a_large_tensor_takes_bounded_time():
    began = time.monotonic()
    found = look.histogram("x", torch.ones(50_000_000, dtype=torch.bfloat16).view(5000, -1))
    assert sum(found.counts) == 50_000_000 and time.monotonic() - began < 30


def test_the_original_against_itself_and_its_quantized_form(pair):
    source, int4 = pair
    spec = {"original": str(source), "candidates": [str(source), str(int4)], "tokens": 1000}
    same, ours = [event for event in quality.run(spec, source) if isinstance(event, QualityMeasured)]
    assert (same.name, ours.name) == ("model", "int4")
    assert same.tokens == ours.tokens and 900 < ours.tokens < 1000
    assert same.kl == pytest.approx(0, abs=1e-6) and same.top1_agreement == 1
    assert same.perplexity == pytest.approx(same.original_perplexity)
    assert 0.001 < ours.kl < 1 and 0.3 < ours.top1_agreement < 1


def test_a_head_that_is_the_originals_is_held_once(pair):
    (_, original), (_, result) = quality._ends([Skeleton(folder, torch.device("cpu")) for folder in pair])
    assert original is result


def test_another_model_is_refused(pair, tmp_path):
    source, _ = pair
    other = write_model(tmp_path / "other", num_hidden_layers=1)
    with pytest.raises(WorkbenchError, match="other is not made from"):
        list(quality.run({"original": str(source), "candidates": [str(other)], "tokens": 600}, tmp_path))


def tamper(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


K = "model.layers.0.self_attn.k_proj"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop(f"{K}.weight_scale"), "missing"),
        (lambda t: t.update({"more": torch.zeros(1)}), "missing or not planned"),
        (lambda t: (t.pop(f"{K}.weight_packed"), t.update({f"{K}.weight": torch.zeros(64, 64)})), "missing|not packed"),
        (lambda t: t[f"{K}.weight_scale"].zero_(), "scales of zero"),
        (lambda t: t[f"{K}.weight_scale"].fill_(float("nan")), "zero|not finite"),
        (lambda t: t["model.norm.weight"].fill_(float("inf")), "not finite"),
        (lambda t: t[f"{K}.weight_shape"].fill_(7), "another shape"),
    ],
)
def test_a_tampered_result_does_not_pass(pair, tmp_path, change, sentence):
    """H14's tamper test: the check names what is wrong."""
    source, _ = pair
    quantized(source, tmp_path / "out", "rtn")
    expected = set(load_file(tmp_path / "out/model.safetensors"))
    planned = plan.make(catalog.inspect(source), recipe.RTN)
    verify.check(tmp_path / "out", planned, expected)
    tamper(tmp_path / "out", change)
    with pytest.raises(WorkbenchError, match=sentence):
        verify.check(tmp_path / "out", planned, expected)
