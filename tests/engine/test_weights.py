"""Tensors come from their files as they were written, whole, by rows and several at a time."""

import pytest
import torch
from safetensors.torch import save_file

from workbench.errors import WorkbenchError
from workbench.quantization.weights import Weights


@pytest.fixture
def stored(tmp_path):
    torch.manual_seed(0)
    tensors = {
        "table": torch.randn(50, 7).bfloat16(), "scale": torch.randn(3, 1, 2), "shape": torch.tensor([3, 4]),
        "packed": torch.arange(12).view(3, 4).int(), "one": torch.tensor(2.5), "none": torch.empty(0, 4),
        "flag": torch.tensor([True]),
    }  # fmt: skip
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path, tensors


def test_every_tensor_is_read_as_it_was_written(stored):
    folder, tensors = stored
    weights = Weights(folder)
    assert set(weights) == set(tensors) and "table" in weights and "other" not in weights
    wanted = sorted(tensors)
    found = list(weights.each(wanted))
    assert [name for name, _ in found] == wanted
    for name, tensor in found:
        assert tensor.dtype == tensors[name].dtype and torch.equal(tensor, tensors[name])
    assert weights.below("s").keys() == {"cale", "hape"}


def test_rows_are_read_alone(stored):
    folder, tensors = stored
    wanted = torch.tensor([[49, 0, 7], [7, 7, 3]])
    assert torch.equal(Weights(folder).rows("table", wanted), tensors["table"][wanted].float())


def test_what_was_cut_since_it_was_opened_is_refused(stored):
    folder, _ = stored
    weights, file = Weights(folder), folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-760])
    with pytest.raises(WorkbenchError, match="cannot be read"):
        dict(weights.each(weights))
    with pytest.raises(WorkbenchError, match="cannot be read"):
        weights.rows("table", torch.arange(50))
    with pytest.raises(WorkbenchError, match="is not in"):
        weights.read("other")
