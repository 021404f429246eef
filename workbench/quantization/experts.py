"""Experts one by one: transformers holds them in two tensors of three dimensions, checkpoints and vLLM singly."""

import torch
from torch import Tensor, nn


class Expert(nn.Module):
    """One expert: down(act(gate(x)) · up(x))."""

    def __init__(self, hidden: int, intermediate: int, act: nn.Module):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)
        self.act = act

    def activate(self, rows: Tensor) -> Tensor:
        """What enters down_proj, [tokens, intermediate]."""
        return self.act(self.gate_proj(rows)) * self.up_proj(rows)

    def forward(self, rows: Tensor) -> Tensor:
        return self.down_proj(self.activate(rows))


class Experts(nn.ModuleList):
    """All experts of a block, called as transformers calls its own."""

    def forward(self, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """hidden: [tokens, hidden]; index, weights: [tokens, k] of the experts that each token was sent to."""
        total = torch.zeros_like(hidden)
        for number in index.unique().tolist():
            if number < len(self):
                token, place = torch.where(index == number)
                total.index_add_(0, token, self[number](hidden[token]) * weights[token, place, None])
        return total


def fused(block: nn.Module) -> dict[str, nn.Module]:
    """The modules of a block that hold all experts in two tensors, by path."""
    return {name: module for name, module in block.named_modules() if _holds_experts(module)}


def opened(block: nn.Module) -> nn.Module:
    """The block with every such module replaced by single experts; weights are not carried over."""
    for path, module in fused(block).items():
        count, hidden, intermediate = module.down_proj.shape
        parent, _, leaf = path.rpartition(".")
        with torch.device("meta"):
            single = Experts(Expert(hidden, intermediate, module.act_fn) for _ in range(count))
        setattr(block.get_submodule(parent), leaf, single)
    return block


@torch.no_grad()
def same(module: nn.Module, expert: Expert) -> bool:
    """Whether transformers' own code does with one expert what we do. module: a fused one, its weights unused."""
    weight = expert.down_proj.weight
    module.gate_up_proj = nn.Parameter(torch.cat((expert.gate_proj.weight, expert.up_proj.weight))[None], False)
    module.down_proj = nn.Parameter(weight[None], False)
    module.num_experts = 1
    rows = torch.randn(6, weight.shape[0], device=weight.device)
    share = torch.rand(6, 1, device=weight.device)
    right = module(rows, torch.zeros(6, 1, dtype=torch.long, device=weight.device), share)
    return torch.allclose(expert(rows) * share, right, rtol=1e-3, atol=1e-4 * right.abs().max().item())


def _holds_experts(module: nn.Module) -> bool:
    own = dict(module.named_parameters(recurse=False))
    if own.keys() != {"gate_up_proj", "down_proj"} or not hasattr(module, "act_fn"):
        return False
    down, both = module.down_proj, module.gate_up_proj
    return down.dim() == both.dim() == 3 and both.shape == (down.shape[0], 2 * down.shape[2], down.shape[1])
