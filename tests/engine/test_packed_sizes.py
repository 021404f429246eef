"""What the plan says a packed layer takes is what packing it gives, and it reads back as it was."""

import pytest
import torch

from workbench import sizes
from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.quantization import packing
from workbench.quantization.grid import fit
from workbench.recipe import BITS, WHOLE_ROW, Choice


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", [32, 64, WHOLE_ROW])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("shape", [(48, 192), (50, 320)])
def test_sizes_and_values(bits, group_size, symmetric, shape):
    if bits == 8 and not symmetric:
        pytest.skip("no such choice")
    torch.manual_seed(0)
    choice = Choice(bits=bits, group_size=group_size, symmetric=symmetric)
    weight = torch.randn(shape)
    grid = fit(weight, choice, torch.bfloat16)
    integers = grid.integers(weight)
    packed = packing.pack(integers, grid, choice, torch.bfloat16)
    linear = Linear("a.q_proj", 0, "q", *shape)
    stored = Tensor("a.q_proj.weight", "BF16", shape, "", bytes=2 * weight.numel())
    predicted = {part.name: (tuple(part.shape), part.bytes) for part in sizes.packed(linear, choice, stored)}
    assert predicted == {
        name: (tuple(tensor.shape), tensor.numel() * tensor.element_size()) for name, tensor in packed.items()
    }
    read = packing.unpack(packed, packing.scheme_of(choice, []))
    assert torch.allclose(read, grid.values(integers), atol=1e-6)
    assert packing.scheme_of(choice, []).weights.actorder is None  # H15: with groups or without
