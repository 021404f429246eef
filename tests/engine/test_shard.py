"""Tensors go to disk as they come, and safetensors reads the file."""

import psutil
import pytest
import torch
from safetensors.torch import load_file

from workbench.quantization.shard import Shard


@pytest.fixture
def shard(tmp_path):
    made = Shard(tmp_path / "model.safetensors")
    yield made
    made.discard()


def test_safetensors_reads_every_kind_of_tensor(shard, tmp_path):
    torch.manual_seed(0)
    tensors = {
        "flag": torch.tensor([True]), "odd": torch.randn(5).bfloat16(), "packed": torch.arange(12).view(3, 4).int(),
        "shape": torch.tensor([3, 4]), "one": torch.tensor(2.5), "none": torch.empty(0, 4).half(),
        "turned": torch.randn(4, 6).T, "eight": torch.randn(3).to(torch.float8_e4m3fn),
    }  # fmt: skip
    for name, tensor in tensors.items():
        shard.add(name, tensor)
    assert not list(tmp_path.iterdir())
    shard.close()
    found = load_file(shard.path)
    assert found.keys() == tensors.keys() == shard.tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_what_was_added_is_not_held_in_memory(shard):
    tensor, process = torch.ones(2 << 20), psutil.Process()
    shard.add("0", tensor)
    before = process.memory_info().rss
    for number in range(1, 24):
        shard.add(str(number), tensor.clone())
    shard.close()
    assert shard.bytes == 24 * tensor.nbytes
    assert process.memory_info().rss - before < shard.bytes / 2  # the allocator keeps some of what is freed


def test_what_is_given_up_leaves_nothing(shard, tmp_path):
    shard.add("some", torch.ones(8))
    shard.discard()
    assert not list(tmp_path.iterdir())
