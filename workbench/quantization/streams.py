"""Where the output of a linear layer stands in the residual stream, found by adding to it and looking what moved."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from workbench.quantization.graph import is_norm, listening

LEAVING = ""  # what leaves the block
SAME = 1e-3  # of what was added


@torch.no_grad()
def points(block: nn.Module, linears: Iterable[str], run: Callable[[], Tensor]) -> dict[str, str]:
    """For each layer the first norm whose input moves by just what is added to the layer's output, else LEAVING where
    the block's output does; layers without such a point are left out. `run` sends the same few tokens through."""
    base, found = _seen(block, run), {}
    width = base[LEAVING].shape[-1]
    for path in linears:
        layer = block.get_submodule(path)
        if layer.out_features != width:
            continue
        added = torch.randn(width, device=base[LEAVING].device)
        handle = layer.register_forward_hook(lambda _, args, output, added=added: output + added)
        try:
            changed = _seen(block, run)
        finally:
            handle.remove()
        for point, before in base.items():
            if before.shape[-1] == width and _moved_by(added, before, changed[point]):
                found[path] = point
                break
    return found


def _seen(block: nn.Module, run: Callable[[], Tensor]) -> dict[str, Tensor]:
    """What enters each norm, in the order they run, and then what leaves the block."""
    seen: dict[str, Tensor] = {}
    with ExitStack() as hooks:
        for path, module in block.named_modules():
            if is_norm(module):
                hooks.enter_context(listening(module, lambda _, args, path=path: seen.update({path: args[0].clone()})))
        leaving = run()
    return seen | {LEAVING: leaving}


def _moved_by(added: Tensor, before: Tensor, after: Tensor) -> bool:
    return bool((after - before - added).abs().max() < SAME * added.abs().max() + 1e-5 * before.abs().max())
