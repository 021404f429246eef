"""How the linear layers of a block hang together, learnt by running it once and proved by running it again.

Nothing is taken from names: layers that receive the very same tensor share an input, and a norm may take scales
only where the block's output stays as it was when the norm is divided and these layers alone are multiplied.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workbench.catalog.linears import left_alone
from workbench.quantization.experts import Experts

SAME = 1e-3  # of what the same change does when nothing makes up for it


@dataclass(frozen=True, slots=True)
class Feed:
    """Input i of `reader` is proportional to row `rows[i]` of `source`, so that both can share a scale."""

    source: str
    reader: str
    rows: Tensor


@dataclass(frozen=True, slots=True)
class Stage:
    """Linear layers with one input, in the order they run; `norm` may take its scales. Or one module of experts."""

    linears: tuple[str, ...] = ()
    norm: str | None = None
    experts: str | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A block's stages in the order they run; all names are paths inside the block."""

    stages: tuple[Stage, ...]
    feeds: tuple[Feed, ...]


@torch.no_grad()
def learn(block: nn.Module, run: Callable[[], Tensor]) -> Graph:
    """`run` sends the same few random tokens through the block and returns what leaves it."""
    groups, experts, norms = _traced(block, run)
    base = run()
    stages: dict[int, Stage] = {at: Stage(experts=path) for path, at in experts.items()}
    feeds: list[Feed] = []
    earlier: list[str] = []
    for at, inputs, linears in groups:
        norm = next((path for path, output in norms if _same_tensor(output, inputs)), None)
        if norm and not _takes_scales(block, norm, linears, run, base):
            norm = None
        if not norm and len(linears) == 1 and (feed := _feed(block, linears[0], earlier, run, base)):
            feeds.append(feed)
        stages[at] = Stage(tuple(linears), norm)
        earlier += linears
    return Graph(tuple(stages[at] for at in sorted(stages)), tuple(feeds))


def offset(norm: nn.Module) -> float | None:
    """What is added to a norm's weight before it multiplies: 0 mostly, 1 in Gemma; None where it is neither."""
    weight = norm.weight
    given = torch.randn(3, weight.numel(), device=weight.device, dtype=weight.dtype)
    kept = weight.clone()
    try:
        none, one = (norm(given) if weight.fill_(value) is weight else given for value in (0.0, 1.0))
    finally:
        weight.copy_(kept)
    for added in (0.0, 1.0):
        if torch.allclose(none * (1 + added), one * added, atol=1e-5) and one.abs().max() > 0:
            return added
    return None


@contextmanager
def listening(module: nn.Module, hook: Callable) -> Iterator[None]:
    """`hook(module, args)` before each of its runs; what it returns, unless None, takes the place of the inputs."""
    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _traced(block: nn.Module, run: Callable[[], Tensor]):
    """The inputs of linears, the modules of experts and the outputs of norms, numbered as they occur."""
    groups: list[tuple[int, Tensor, list[str]]] = []
    experts: dict[str, int] = {}
    norms: list[tuple[str, Tensor]] = []
    count = 0

    def linear(path: str, inputs: Tensor) -> None:
        nonlocal count
        count += 1
        group = next((names for _, seen, names in groups if _same_tensor(seen, inputs)), None)
        if group is None:
            groups.append((count, inputs, [path]))
        else:
            group.append(path)

    def expert(path: str) -> None:
        nonlocal count
        count += 1
        experts[path] = count

    inside = [f"{path}." for path, module in block.named_modules() if isinstance(module, Experts)]
    with ExitStack() as hooks:
        for path, module in block.named_modules():
            if any(path.startswith(prefix) for prefix in inside):
                continue
            if isinstance(module, Experts):
                hooks.enter_context(listening(module, lambda _, args, path=path: expert(path)))
            elif isinstance(module, nn.Linear) and min(module.weight.shape) > 1 and not left_alone(path):
                hooks.enter_context(listening(module, lambda _, args, path=path: linear(path, args[0])))
            elif is_norm(module):
                handle = module.register_forward_hook(lambda _, args, out, path=path: norms.append((path, out)))
                hooks.callback(handle.remove)
        run()
    return groups, experts, norms


def _takes_scales(block: nn.Module, norm: str, linears: list[str], run: Callable[[], Tensor], base: Tensor) -> bool:
    module = block.get_submodule(norm)
    if offset(module) is None:
        return False
    scale = _scale(module.weight.numel(), base.device)
    with ExitStack() as hooks:
        handle = module.register_forward_hook(lambda _, args, output: output / scale)
        hooks.callback(handle.remove)
        changed = run()
        for path in linears:
            hooks.enter_context(listening(block.get_submodule(path), lambda _, args: (args[0] * scale,)))
        return _made_up(base, changed, run())


def _feed(block: nn.Module, reader: str, earlier: list[str], run: Callable[[], Tensor], base: Tensor) -> Feed | None:
    parent = reader.rpartition(".")[0]
    module = block.get_submodule(reader)
    for source in reversed(earlier):
        if source.rpartition(".")[0] != parent:
            continue
        made = block.get_submodule(source)
        for rows in _row_maps(made.out_features, module.in_features, block.get_submodule(parent)):
            rows = rows.to(base.device)
            scale = _scale(made.out_features, base.device)
            outputs = torch.ones_like(scale)
            outputs[rows] = 1 / scale[rows]
            with ExitStack() as hooks:
                handle = made.register_forward_hook(lambda _, args, output, by=outputs: output * by)
                hooks.callback(handle.remove)
                changed = run()
                by = scale[rows]
                hooks.enter_context(listening(module, lambda _, args, by=by: (args[0] * by,)))
                if _made_up(base, changed, run()):
                    return Feed(source, reader, rows)
    return None


def _row_maps(rows: int, inputs: int, parent: nn.Module) -> Iterator[Tensor]:
    """Which row of a layer each input of a later one may follow: guesses from the sizes alone, to be proved."""
    if rows == inputs:
        yield torch.arange(inputs)
    if rows == 2 * inputs:  # gate and up in one, in either order
        yield torch.arange(inputs, rows)
        yield torch.arange(inputs)
    head = getattr(parent, "head_dim", None)
    values = rows if rows < inputs else (rows - inputs) // 2  # alone, or behind queries and keys
    if head and values > 0 and values % head == 0 and inputs % values == 0 and rows != inputs:
        yield repeated(values, inputs // values, head) + (rows - values)
    head = getattr(parent, "v_head_dim", None)
    if head and inputs % head == 0 and rows % (inputs // head) == 0 and rows > inputs:
        yield torch.arange(rows).view(inputs // head, -1)[:, -head:].reshape(-1)  # keys and values of each head


def repeated(rows: int, repeat: int, head: int) -> Tensor:
    """The row map where each head of `head` rows is read `repeat` times, as under grouped-query attention."""
    return torch.arange(rows).view(-1, 1, head).expand(-1, repeat, head).reshape(-1)


def _made_up(base: Tensor, changed: Tensor, restored: Tensor) -> bool:
    harm = (changed - base).abs().max().item()
    return harm > 1e-4 * base.abs().max().item() and (restored - base).abs().max().item() < SAME * harm


def _scale(size: int, device: torch.device) -> Tensor:
    return torch.exp2(torch.rand(size, device=device) * 2 - 1)


def is_norm(module: nn.Module) -> bool:
    own = dict(module.named_parameters())
    return list(own) == ["weight"] and own["weight"].dim() == 1 and not isinstance(module, nn.Linear)


def _same_tensor(one: Tensor, other: Tensor) -> bool:
    """One tensor or a reshaped view of it; both are still held, so that no address was given out twice."""
    return one.data_ptr() == other.data_ptr() and one.numel() == other.numel() and one.shape[-1] == other.shape[-1]
