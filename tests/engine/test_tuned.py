"""A trainable quantized layer against autograd over its plain weight."""

import pytest
import torch
from torch.nn.functional import linear

from workbench.quantization.rounding import nearest
from workbench.quantization.tuned import Tuned
from workbench.recipe import Choice


@pytest.mark.parametrize("choice", [Choice(group_size=32, symmetric=False), Choice(bits=8, group_size=-1)])
@pytest.mark.parametrize("product", [torch.float32, torch.bfloat16])
def test_outputs_and_gradients_are_those_of_the_plain_layer(choice, product):
    torch.manual_seed(0)
    weight, bias, inputs = torch.randn(24, 64), torch.randn(24), torch.randn(3, 5, 64, requires_grad=True)
    result = nearest(weight, choice, torch.bfloat16)
    values = result.grid.values(result.integers)
    layer = Tuned(values, result.grid.scale, bias, product)
    assert torch.equal(layer.weight, values)

    with torch.no_grad():
        layer.change.normal_(std=0.1)
    change = layer.change.detach().clone().requires_grad_()
    groups = result.integers.float().unflatten(1, (-1, result.grid.group_size)) - result.grid.zero[..., None]
    plain = linear(inputs, (groups * (result.grid.scale * (1 + change))[..., None]).flatten(1), bias)
    right = torch.autograd.grad(plain.square().sum(), (inputs, change))
    ours = layer(inputs)
    found = torch.autograd.grad(ours.square().sum(), (inputs, layer.change))
    share = 1e-5 if product == torch.float32 else 2e-2
    for mine, theirs in ((ours, plain), *zip(found, right, strict=True)):
        assert (mine - theirs).norm() < share * theirs.norm()
