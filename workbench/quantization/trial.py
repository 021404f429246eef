"""One linear layer quantized for show: what a choice would do to it, by the kernels that the real run uses."""

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from workbench import plan as plans
from workbench import sizes
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.quant_events import WhatIf
from workbench.quantization import awq, stats
from workbench.quantization.gathering import Kept, check_finite
from workbench.quantization.graph import repeated
from workbench.quantization.rounding import Rounded, nearest, rounded
from workbench.quantization.weights import Weights
from workbench.recipe import AUTO, WHOLE_ROW, Choice, Recipe, with_rules

QUICK_WORK = 2e9  # multiplications for each figure of a first answer
WHOLE_WORK = 1.5e10  # up to this much in all, the whole answer is quick enough to be the first
SEARCH_WORK = 5e10  # the scale search of a whole answer
HISTOGRAM_WORK = 2000.0  # what counting one weight costs, in multiplications of a matrix product
KEPT_BYTES = 3 << 30  # layers that stay in memory, weights and moments


@dataclass(slots=True)
class Layer:
    """A layer that was asked for: its weight [out, in] as stored, H [in, in] or None, all layers that read the same
    input, figures made before, and AWQ's scales [in] that were found before."""

    linear: Linear
    weight: Tensor
    H: Tensor | None = None
    estimated: bool = False
    readers: tuple[str, ...] = ()
    figures: dict[tuple, float] = field(default_factory=dict)
    scales: dict[tuple, Tensor] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.weight.nbytes + (self.H.nbytes if self.H is not None else 0)


class Bench:
    """Answers for one model. `recipe` tells what group size "auto" means here.

    Layers are judged alone, with inputs of the unquantized model, so that fitting them to the original does nothing.
    AWQ's scale is not rounded by the norm that will hold it (less than 2⁻⁸ of it), and of large layers it is searched
    on some rows.
    """

    def __init__(self, model: Model, recipe: Recipe, weights: Weights, kept: Kept):
        self._model, self._recipe, self._weights, self._kept = model, recipe, weights, kept
        self._linears = {linear.name: linear for linear in model.linears}
        self._stored = {tensor.name: tensor for tensor in model.tensors}
        self._layers: OrderedDict[str, Layer] = OrderedDict()

    def answers(self, number: int, name: str, choice: Choice) -> Iterator[WhatIf]:
        """The first answer and, where that is not final, the whole one."""
        first = self.first(number, name, choice)
        yield first
        if not first.final:
            yield self.whole(number, name, choice)

    @torch.no_grad()
    def first(self, number: int, name: str, choice: Choice) -> WhatIf:
        """The whole answer, or one on some rows where that would take long."""
        choice = self._resolved(name, choice)
        layer = self._layer(name)
        with _one_thread():
            return self._answer(number, layer, choice, quick=_work(layer, choice) > WHOLE_WORK)

    @torch.no_grad()
    def whole(self, number: int, name: str, choice: Choice) -> WhatIf:
        """The final answer; of a large layer it takes many seconds."""
        return self._answer(number, self._layer(name), self._resolved(name, choice), quick=False)

    def _answer(self, number: int, layer: Layer, choice: Choice, quick: bool) -> WhatIf:
        started = time.monotonic()
        wanted = QUICK_WORK / layer.weight.shape[1] ** 2 if quick else len(layer.weight)
        original = layer.weight[_rows(len(layer.weight), wanted, least=64)].to(torch.float32)
        scale = self._scale(layer, choice, QUICK_WORK if quick else SEARCH_WORK)
        weight = original if scale is None else original * scale
        H = layer.H if layer.H is None or scale is None else layer.H / scale / scale[:, None]
        compensated = "gptq" not in choice.method or not quick
        result = _rounded(weight, H, choice if compensated else _uncompensated(choice), layer.weight.dtype)
        after = weight if result is None else result.grid.values(result.integers)
        wrong = weight - after if scale is None else (weight - after) / scale
        error, plain = self._errors(layer, choice, original, wrong, quick)
        spread = stats.spread(weight)
        return WhatIf(
            id=number,
            module=layer.linear.name,
            method=choice.method,
            bits=choice.bits,
            group_size=choice.group_size,
            symmetric=choice.symmetric,
            shape=tuple(layer.weight.shape),
            bytes=self._bytes(layer.linear, choice),
            low=spread.low,
            high=spread.high,
            before=stats.counts(weight, spread.low, spread.high),
            after=stats.counts(after, spread.low, spread.high),
            levels=result.grid.levels() if result else (),
            not_finite=spread.not_finite,
            weight_error=((weight - after).square().sum() / weight.square().sum().clamp(min=1e-30)).item(),
            output_error=error,
            plain_output_error=plain,
            kurtosis=spread.kurtosis,
            outliers=spread.outliers,
            clipped=result.grid.clipped(weight) if result else 0.0,
            rows=len(original),
            final=not quick,
            compensated=compensated,
            estimated=layer.estimated,
            seconds=time.monotonic() - started,
            scale_low=scale.min().item() if scale is not None else None,
            scale_high=scale.max().item() if scale is not None else None,
            damping=result.damping if result else None,
            fallback=result.fallback if result else "",
        )

    def _errors(
        self, layer: Layer, choice: Choice, original: Tensor, wrong: Tensor, quick: bool
    ) -> tuple[float | None, float | None]:
        """The relative output errors of the choice and of plain rounding at its bits, group size and symmetry."""
        H = layer.H
        if H is None:
            return None, None
        if (signal := layer.figures.get(("signal", quick))) is None:
            signal = layer.figures["signal", quick] = output_error(original, H)
        if not signal > 0:
            return None, None
        key = ("plain", quick, choice.bits, choice.group_size, choice.symmetric)
        if choice.kept:
            return 0.0, 0.0
        if key not in layer.figures:
            grid = nearest(original, choice, layer.weight.dtype)
            layer.figures[key] = output_error(original - grid.grid.values(grid.integers), H)
        return output_error(wrong, H) / signal, layer.figures[key] / signal

    def _scale(self, layer: Layer, choice: Choice, work: float) -> Tensor | None:
        """AWQ's scale of the inputs, searched together with the layers that share them; None without AWQ."""
        linear = layer.linear
        if "awq" not in choice.method or layer.H is None or linear.role == "other":
            return None
        # Clip search, order and damping come after it: the same scale serves when only they change.
        key = work, choice.bits, choice.group_size, choice.symmetric, choice.scale
        if key not in layer.scales:
            weights = [self._weights.read(f"{reader}.weight") for reader in layer.readers]
            share = work / awq.STEPS / linear.in_features**2 / sum(map(len, weights))
            some = [weight[_rows(len(weight), share * len(weight), least=8)].to(torch.float32) for weight in weights]
            layer.scales[key] = awq.search_scale(
                [torch.cat(some)], layer.H, choice, layer.weight.dtype, self._alike(linear)
            )
        return layer.scales[key]

    def _alike(self, linear: Linear) -> Tensor | None:
        """Which value each input repeats, [in], under grouped-query attention; None where each stands alone."""
        values = [other for other in self._model.linears if other.parent == linear.parent and other.role == "v"]
        if linear.role != "o" or not values or not self._model.head_dim:
            return None
        repeat = linear.in_features // values[0].out_features
        return repeated(values[0].out_features, repeat, self._model.head_dim) if repeat > 1 else None

    def _layer(self, name: str) -> Layer:
        layer = self._layers.pop(name, None)
        if layer is None or layer.H is None:  # its statistics may have come since
            linear = self._linears[name]
            weight, moments = self._weights.read(f"{name}.weight"), self._kept.moments(name, linear.block)
            check_finite(f"{name}.weight", weight)
            layer = Layer(linear, weight, *(moments or ()))
        self._layers[name] = layer
        while len(self._layers) > 1 and sum(each.bytes for each in self._layers.values()) > KEPT_BYTES:
            self._layers.popitem(last=False)
        return layer

    def _resolved(self, name: str, choice: Choice) -> Choice:
        """The choice with its group size as a number that divides the layer's inputs."""
        if name not in self._linears:
            raise WorkbenchError(
                "There is no linear layer called {name} in this model.", "Choose one from the plan.", name=name
            )
        if choice.group_size == AUTO:
            made = plans.make(self._model, with_rules(self._recipe, (name,), choice))
            choice = next(entry.choice for entry in made.linears if entry.linear.name == name)
        width = self._linears[name].in_features
        if not choice.kept and choice.group_size != WHOLE_ROW and width % choice.group_size:
            raise WorkbenchError(
                "Groups of {size} do not divide the {width} inputs of {name}.", "Choose another group size.",
                size=choice.group_size, width=width, name=name,
            )  # fmt: skip
        return choice

    def _bytes(self, linear: Linear, choice: Choice) -> int:
        tensor = self._stored[f"{linear.name}.weight"]
        return tensor.bytes if choice.kept else sum(part.bytes for part in sizes.packed(linear, choice, tensor))


@contextmanager
def _one_thread() -> Iterator[None]:
    """What takes half a second of work is done sooner without waiting for other threads on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def output_error(wrong: Tensor, H: Tensor, strip: int = 512) -> float:
    """tr(ΔW H ΔWᵀ) with every pair of inputs taken once: half the work for large layers. wrong: [out, in]."""
    total = 0.0
    for at in range(0, wrong.shape[1], strip):
        own, rest = wrong[:, at : at + strip], wrong[:, at + strip :]
        product = own @ H[at : at + strip, at : at + strip]
        if rest.shape[1]:
            product.addmm_(rest, H[at + strip :, at : at + strip], alpha=2)
        total += (product * own).sum().item()
    return total


def _rounded(weight: Tensor, H: Tensor | None, choice: Choice, stored: torch.dtype) -> Rounded | None:
    return None if choice.kept else rounded(weight, H, choice, stored)


def _uncompensated(choice: Choice) -> Choice:
    """The same grid with plain rounding on it: what GPTQ begins with."""
    return replace(choice, method="awq")


def _work(layer: Layer, choice: Choice) -> float:
    """Multiplications of a whole answer, about."""
    rows, width = layer.weight.shape
    work = HISTOGRAM_WORK * rows * width
    if layer.H is None or choice.kept:
        return work
    work += 3.0 * rows * width**2
    if "awq" in choice.method:
        work += min(SEARCH_WORK, awq.STEPS * rows * width**2)
    if "gptq" in choice.method:
        work += 2.7 * width**3 + (18 if choice.refine else 2) * rows * width**2
    return work


def _rows(total: int, wanted: float, least: int) -> Tensor | slice:
    """`wanted` of `total` rows, but at least `least`, evenly spread; all where that is no fewer."""
    count = max(least, int(min(wanted, total)))
    return slice(None) if count >= total else torch.linspace(0, total - 1, count).round().long()
