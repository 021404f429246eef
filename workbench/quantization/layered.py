"""One block's turn: each part sees inputs that come through what is already quantized before it."""

import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from workbench.events import Event, ModuleDone, ModuleStarted
from workbench.plan import Planned
from workbench.quantization import awq, packing, stats
from workbench.quantization.blocks import Skeleton
from workbench.quantization.moments import Moments, output_error
from workbench.quantization.rounding import Rounded, nearest, rounded

KEEP_BYTES = 1 << 30  # what a pass may keep of its results instead of computing them a second time


class BlockTurn:
    """Quantizes one block. `hidden` holds the batches that enter it and, when done, those that leave it.

    With an empty `hidden` nothing is calibrated and every layer is rounded plainly. `planned` is by role; a role that
    is absent keeps its weight. `tensors` fills with what goes on disk, by full name.
    """

    def __init__(
        self, skeleton: Skeleton, index: int, planned: Mapping[str, Planned], hidden: list[Tensor], stored: torch.dtype
    ):
        self._skeleton, self._index, self._stored = skeleton, index, stored
        self._planned, self._hidden = planned, hidden
        self._block = skeleton.load(index)
        attention, mlp = self._block.self_attn, self._block.mlp
        self._linears: dict[str, nn.Linear] = {
            "q": attention.q_proj, "k": attention.k_proj, "v": attention.v_proj, "o": attention.o_proj,
            "gate": mlp.gate_proj, "up": mlp.up_proj, "down": mlp.down_proj,
        }  # fmt: skip
        self._scales: dict[str, Tensor] = {}
        self.tensors: dict[str, Tensor] = {}

    @torch.no_grad()
    def run(self) -> Iterator[Event]:
        """The events of its linear layers, each when it is packed."""
        yield from self._attention()
        yield from self._mlp()
        self._keep_the_rest()

    def _attention(self) -> Iterator[Event]:
        skeleton, block = self._skeleton, self._block
        repeat = self._linears["o"].in_features // self._linears["v"].out_features
        scale_values = self._uses_awq("o") and "v" in self._planned
        entering, leaving = self._moments("q"), self._moments("o")
        for batch in self._batches():
            normed = block.input_layernorm(batch)
            entering.add(normed)
            if scale_values:
                leaving.add(skeleton.attend(block, normed))
        if scale_values:
            self._scale_rows("v", "o", leaving, repeat, block.self_attn.head_dim)
        if self._uses_awq("q", "k", "v"):
            entering = self._scale_inputs(("q", "k", "v"), block.input_layernorm, entering)
        for role in ("q", "k", "v"):
            yield from self._quantize(role, entering)

        leaving, cores = self._moments("o"), []
        for batch in self._batches():
            cores.append(skeleton.attend(block, block.input_layernorm(batch)))
            leaving.add(cores[-1])
            cores[-1] = cores[-1].to("cpu")
        yield from self._quantize("o", leaving)
        for at, core in enumerate(cores):
            self._add(at, self._linears["o"](core.to(skeleton.device)))

    def _mlp(self) -> Iterator[Event]:
        skeleton, block = self._skeleton, self._block
        norm = block.post_attention_layernorm
        scale_rows = self._uses_awq("down") and "up" in self._planned
        entering, leaving = self._moments("gate"), self._moments("down")
        for batch in self._batches():
            normed = norm(batch)
            entering.add(normed)
            if scale_rows:
                leaving.add(skeleton.activate(block, normed))
        if scale_rows:
            self._scale_rows("up", "down", leaving, 1, 1)
        if self._uses_awq("gate", "up"):
            entering = self._scale_inputs(("gate", "up"), norm, entering)
        for role in ("gate", "up"):
            yield from self._quantize(role, entering)

        leaving, kept = self._moments("down"), []
        size = sum(batch.shape[0] * batch.shape[1] for batch in self._hidden) * self._linears["down"].in_features * 4
        for batch in self._batches():
            active = skeleton.activate(block, norm(batch))
            leaving.add(active)
            if size <= KEEP_BYTES:
                kept.append(active.to("cpu"))
        yield from self._quantize("down", leaving)
        for at, batch in enumerate(self._batches()):
            active = kept[at].to(skeleton.device) if kept else skeleton.activate(block, norm(batch))
            self._add(at, self._linears["down"](active))

    def _quantize(self, role: str, moments: Moments) -> Iterator[Event]:
        if role not in self._planned:
            return
        planned, linear = self._planned[role], self._linears[role]
        yield ModuleStarted(planned.linear.name, self._index)
        started = time.monotonic()
        weight, choice = linear.weight, planned.choice
        H = moments.matrix if moments.tokens else None
        result = rounded(weight, H, choice, self._stored)
        packed = packing.pack(result.integers, result.grid, choice, self._stored)
        read_back = packing.unpack(packed, packing.scheme_of(choice, [])).to(weight.device)
        report = self._report(role, result, read_back, H, started)
        linear.weight = nn.Parameter(read_back, requires_grad=False)
        self.tensors |= {f"{planned.linear.name}.{part}": tensor for part, tensor in packed.items()}
        yield report

    def _report(self, role: str, result: Rounded, read_back: Tensor, H: Tensor | None, started: float) -> ModuleDone:
        """`before` counts the weight that was rounded, AWQ scales included, `after` what is read back in its place."""
        planned, weight = self._planned[role], self._linears[role].weight
        choice, scale = planned.choice, self._scales.get(role)
        error = plain_error = None
        if H is not None and (signal := output_error(weight, H)) > 0:
            error = output_error(weight - read_back, H) / signal
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
        )

    def _scale_inputs(self, roles: tuple[str, ...], norm: nn.Module, moments: Moments) -> Moments:
        linears = [self._linears[role] for role in roles]
        choice = self._planned[roles[0]].choice
        scale = awq.search_scale([linear.weight for linear in linears], moments.matrix, choice, self._stored)
        used = awq.fold_norm(norm, linears, scale, self._stored)
        self._scales |= dict.fromkeys(roles, used)
        return moments.scaled(used)

    def _scale_rows(self, source: str, reader: str, moments: Moments, repeat: int, head: int) -> None:
        linear, choice = self._linears[reader], self._planned[reader].choice
        scale = awq.search_scale([linear.weight], moments.matrix, choice, self._stored, repeat, head)
        self._scales[reader] = awq.fold_rows(self._linears[source], linear, scale, repeat, head, self._stored)

    def _uses_awq(self, *roles: str) -> bool:
        if not self._hidden:
            return False
        return all(role in self._planned and "awq" in self._planned[role].choice.method for role in roles)

    def _moments(self, role: str) -> Moments:
        return Moments(self._linears[role].in_features, self._skeleton.device)

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
        for name, original in self._skeleton.weights.below(prefix).items():
            if prefix + name in packed:
                continue
            same = name not in now or torch.equal(now[name].cpu(), original.to(torch.float32))
            self.tensors[prefix + name] = original if same else now[name].to(original.dtype).cpu()
