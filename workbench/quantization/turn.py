"""What the turn of every block has in common: rounding, folding scales, reporting, and what is kept."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from workbench.events import Event, Note
from workbench.plan import Planned
from workbench.quant_events import ModuleDone, ModuleStarted
from workbench.quantization import awq, packing, stats
from workbench.quantization.blocks import Skeleton
from workbench.quantization.moments import Moments, output_error
from workbench.quantization.names import in_code
from workbench.quantization.rounding import Rounded, nearest, rounded
from workbench.quantization.targets import moved


class Turn:
    """Quantizes one block. `hidden` holds the batches that enter it and, when done, those that leave it.

    With an empty `hidden` nothing is calibrated and every layer is rounded plainly. `planned` and `linears` share
    their keys; a linear that is not planned keeps its weight. `tensors` fills with what goes on disk, by full name.
    `originals` are the same batches on the original model's way, taken along like `hidden`; with them layers are
    fitted to the original's outputs, without (empty) to those of their own weights.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        index: int,
        block: nn.Module,
        planned: Mapping[str, Planned],
        linears: Mapping[str, nn.Linear],
        hidden: list[Tensor],
        stored: torch.dtype,
        originals: list[Tensor],
    ):
        self._skeleton, self._index, self._stored, self._originals = skeleton, index, stored, originals
        self._block, self._planned, self._linears, self._hidden = block, planned, linears, hidden
        self._scales: dict[str, Tensor] = {}
        self._routed: dict[str, int] = {}
        self.tensors: dict[str, Tensor] = {}

    def _quantize(self, key: str, moments: Moments) -> Iterator[Event]:
        if key not in self._planned:
            return
        planned, linear = self._planned[key], self._linears[key]
        yield ModuleStarted(planned.linear.name, self._index)
        started = time.monotonic()
        weight, choice = linear.weight, planned.choice
        H = moments.matrix if moments.tokens else None
        result = rounded(weight, H, choice, self._stored)
        packed = packing.pack(result.integers, result.grid, choice, self._stored)
        read_back = packing.unpack(packed, packing.scheme_of(choice, []))
        tokens = self._routed.get(key, moments.tokens if H is not None else None)
        report = self._report(key, result, read_back, H, tokens, started)
        linear.weight = nn.Parameter(read_back, requires_grad=False)
        self.tensors |= {f"{planned.linear.name}.{part}": tensor.cpu() for part, tensor in packed.items()}
        yield report

    def _report(
        self, key: str, result: Rounded, read_back: Tensor, H: Tensor | None, tokens: int | None, started: float
    ) -> ModuleDone:
        """`before` counts the weight that was rounded, AWQ scales included, `after` what is read back in its place."""
        planned, weight = self._planned[key], self._linears[key].weight
        choice, scale = planned.choice, self._scales.get(key)
        error = plain_error = unrefined = None
        if H is not None and 0 < (signal := output_error(weight, H)) < math.inf:
            error = output_error(weight - read_back, H) / signal
            unrefined = result.unrefined / signal if result.unrefined is not None else None
            unscaled = weight / scale if scale is not None else weight
            plain = nearest(unscaled, choice, self._stored)
            wrong = unscaled - plain.grid.values(plain.integers)
            plain_error = output_error(wrong * scale if scale is not None else wrong, H) / signal
        spread = stats.spread(weight)
        return ModuleDone(
            name=planned.linear.name,
            block=self._index,
            method=choice.method,
            bits=choice.bits,
            group_size=choice.group_size,
            symmetric=choice.symmetric,
            shape=tuple(weight.shape),
            low=spread.low,
            high=spread.high,
            before=stats.counts(weight, spread.low, spread.high),
            after=stats.counts(read_back, spread.low, spread.high),
            levels=result.grid.levels(),
            not_finite=spread.not_finite,
            weight_error=((weight - read_back).square().sum() / weight.square().sum().clamp(min=1e-30)).item(),
            output_error=error,
            plain_output_error=plain_error,
            sqnr_db=stats.sqnr_db(error),
            kurtosis=spread.kurtosis,
            outliers=spread.outliers,
            clipped=result.grid.clipped(weight),
            seconds=time.monotonic() - started,
            scale_low=scale.min().item() if scale is not None else None,
            scale_high=scale.max().item() if scale is not None else None,
            damping=result.damping,
            fallback=result.fallback,
            tokens=tokens,
            unrefined_error=unrefined,
        )

    def _scale_inputs(self, keys: Sequence[str], norm: nn.Module, moments: Moments, offset: float = 0.0) -> Moments:
        """Move scales from the norm into the layers that read it; the moments of what they read from now on."""
        linears = [self._linears[key] for key in keys]
        choice = self._planned[keys[0]].choice
        scale = awq.search_scale([linear.weight for linear in linears], moments.matrix, choice, self._stored)
        used = awq.fold_norm(norm, linears, scale, self._stored, offset)
        moved = ((used - scale).abs() / scale)[norm.weight + offset != 0]
        self._skeleton.moved = max(self._skeleton.moved, moved.max().item() if len(moved) else 0.0)
        self._scales |= dict.fromkeys(keys, used)
        return moments.scaled(used)

    def _scale_rows(self, source: nn.Linear, reader: str, moments: Moments, rows: Tensor) -> None:
        """Move scales from rows of `source` into the columns of `reader` that follow them."""
        linear, choice = self._linears[reader], self._planned[reader].choice
        scale = awq.search_scale([linear.weight], moments.matrix, choice, self._stored, rows)
        self._scales[reader] = awq.fold_rows(source, linear, scale, rows, self._stored)

    def _tell_moved(self) -> Iterator[Event]:
        """After the last block: how far norms of 16 bit can follow the scales that were searched."""
        if self._index == len(self._skeleton) - 1 and self._skeleton.moved:
            yield Note(
                "Norms are stored in 16 bit, which moved AWQ scales by up to {percent} %; the weights follow exactly.",
                {"percent": round(100 * self._skeleton.moved, 2)},
            )

    def _move(self, key: str, lack: Tensor, moments: Moments) -> None:
        """Move a weight towards the original's outputs before it is rounded; `lack` is [out, in]."""
        if key in self._planned and self._planned[key].choice.method != "rtn":
            linear = self._linears[key]
            weight = moved(linear.weight, lack, moments.matrix, moments.tokens)
            linear.weight = nn.Parameter(weight, requires_grad=False)

    def _counted(self, at: int, rows: Tensor) -> Tensor:
        """What goes into the moments: where the original's stream is loud, an error of the same size does less."""
        if not self._originals:
            return rows
        return rows * self._originals[at].to(rows.device).square().mean(-1, keepdim=True).clamp(min=1e-12).rsqrt()

    def _uses_awq(self, *keys: str) -> bool:
        if not self._hidden:
            return False
        return all(key in self._planned and "awq" in self._planned[key].choice.method for key in keys)

    def _moments(self, key: str) -> Moments:
        return Moments(self._linears[key].in_features, self._skeleton.device)

    def _batches(self) -> Iterator[Tensor]:
        for batch in self._hidden:
            yield batch.to(self._skeleton.device)

    def _add(self, at: int, output: Tensor) -> None:
        self._hidden[at] = self._hidden[at] + output.to(self._hidden[at].device)

    def _keep_the_rest(self) -> None:
        """Norms and biases: bit for bit where no scale was folded in, else in the dtype they had."""
        prefix = self._skeleton.name(self._index) + "."
        packed = {planned.linear.name + ".weight" for planned in self._planned.values()}
        now = dict(self._block.named_parameters())
        for full in [name for name in self._skeleton.weights if name.startswith(prefix) and name not in packed]:
            name, original = full.removeprefix(prefix), self._skeleton.weights.read(full)
            held = now.get(in_code(name) if name not in now else name)
            same = held is None or torch.equal(held.cpu(), original.to(torch.float32))
            self.tensors[full] = original if same else held.to(original.dtype).cpu()
