"""One block's turn where only its structure is known: stage by stage, each with inputs that come through what is
already quantized before it. Slower than the layered way: the block runs once for each stage."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress

import torch
from torch import Tensor, nn

from workbench.events import Event, Note
from workbench.plan import Planned
from workbench.quantization import graph, streams
from workbench.quantization.blocks import Skeleton
from workbench.quantization.experts import Expert, Experts
from workbench.quantization.graph import Graph, Stage, listening
from workbench.quantization.moments import Moments
from workbench.quantization.targets import Lack
from workbench.quantization.turn import Turn

ENOUGH = 512  # tokens for an expert of its own; below, it is calibrated with those of all experts
SPREAD = 8192  # of all experts' tokens at most, evenly taken, stand in for those that an expert lacks
PROBE = 16  # random tokens that show how the layers hang together


class WalkedTurn(Turn):
    """`planned` may have any keys; layers are known by their path inside the block."""

    def __init__(
        self,
        skeleton: Skeleton,
        index: int,
        planned: Mapping[str, Planned],
        hidden: list[Tensor],
        stored: torch.dtype,
        originals: list[Tensor],
    ):
        block = skeleton.load(index)
        by_path = {skeleton.path(entry.linear.name, block): entry for entry in planned.values()}
        linears = {path: block.get_submodule(path) for path in by_path}
        super().__init__(skeleton, index, block, by_path, linears, hidden, stored, originals)
        self._original = skeleton.load(index) if originals else block
        self._points: dict[str, str] = {}

    @torch.no_grad()
    def run(self) -> Iterator[Event]:
        """The events of its linear layers, each when it is packed."""
        if not self._hidden:
            for path, linear in self._linears.items():
                yield from self._quantize(path, Moments(0, linear.weight.device))
        elif self._planned:
            known = graph.learn(self._block, self._probe())
            yield from self._tell(known)
            if self._originals:
                self._points = streams.points(self._block, self._linears, self._probe())
            for stage in known.stages:
                yield from self._experts(stage.experts) if stage.experts else self._stage(stage, known)
        for at, batch in enumerate(self._batches()):
            self._hidden[at] = self._skeleton.forward(self._block, batch).to(self._hidden[at].device)
        for at, batch in enumerate(self._originals):
            leaving = self._skeleton.forward(self._original, batch.to(self._skeleton.device))
            self._originals[at] = leaving.to(batch.device)
        self._keep_the_rest()
        yield from self._tell_moved()

    def _probe(self):
        generator = torch.Generator().manual_seed(self._index)
        tokens = torch.randn(1, PROBE, self._hidden[0].shape[-1], generator=generator).to(self._skeleton.device)
        return lambda: self._skeleton.forward(self._block, tokens)

    def _stage(self, stage: Stage, known: Graph) -> Iterator[Event]:
        planned = [path for path in stage.linears if path in self._planned]
        if not planned:
            return
        feeds = [
            feed for feed in known.feeds
            if feed.source in planned and self._uses_awq(feed.reader)
        ]  # fmt: skip
        gathered = {path: self._moments(path) for path in (planned[0], *(feed.reader for feed in feeds))}
        self._aim(planned, self._gather(planned[0], gathered), gathered[planned[0]])
        for feed in feeds:
            self._scale_rows(self._linears[feed.source], feed.reader, gathered[feed.reader], feed.rows)
        entering = gathered[planned[0]]
        if stage.norm and self._uses_awq(*stage.linears):
            norm = self._block.get_submodule(stage.norm)
            entering = self._scale_inputs(stage.linears, norm, entering, graph.offset(norm) or 0.0)
        for path in planned:
            yield from self._quantize(path, entering)

    def _gather(self, first: str, wanted: Mapping[str, Moments]) -> Tensor | None:
        """Run all batches as far as the last of these layers; with originals, what `first` lacks to be fitted to
        them: at its point in the stream where it has one, [out, in], else at its inputs, [in, in]."""
        if not self._originals:
            for batch in self._batches():
                for path, inputs in self._seen(self._block, batch, wanted).items():
                    wanted[path].add(inputs)
            return None
        point = self._points.get(first)
        linear = self._linears[first]
        lack = Lack(
            linear.in_features if point is None else linear.out_features, linear.in_features, linear.weight.device
        )
        for at, batch in enumerate(self._batches()):
            original = self._originals[at].to(batch.device)
            right = self._seen(self._original, original, [first] if point is None else [], point)
            ours = self._seen(self._block, batch, wanted, point)
            rows = ours[first].flatten(0, -2)
            if point is None:
                scaled = right[first].flatten(0, -2) / self._scales.get(first, 1.0)
                lack.add(scaled - rows, rows)
            else:
                aim = right[point].flatten(0, -2)
                loud = aim.square().mean(-1, keepdim=True).clamp(min=1e-12).rsqrt()
                lack.add((aim - ours[point].flatten(0, -2)) * loud, rows * loud)
                ours[first] = rows * loud
            for path, moments in wanted.items():
                moments.add(ours[path])
        return lack.matrix

    def _aim(self, planned: list[str], lack: Tensor | None, moments: Moments) -> None:
        if lack is None:
            return
        for path in planned:
            if planned[0] not in self._points:
                self._move(path, self._linears[path].weight @ lack, moments)
            elif len(planned) == 1:
                self._move(path, lack, moments)

    def _seen(
        self, block: nn.Module, batch: Tensor, inputs: Iterable[str], point: str | None = None
    ) -> dict[str, Tensor]:
        """What enters these layers, and the stream at `point`, in one run of a block that goes no further."""
        seen: dict[str, Tensor] = {}
        left = {*inputs, *(() if point is None else (point,))}

        def take(path: str, given: Tensor) -> None:
            seen[path] = given
            if left <= seen.keys():
                raise _Enough

        with ExitStack() as hooks:
            for path in left - {streams.LEAVING}:
                module = block.get_submodule(path)
                hooks.enter_context(listening(module, lambda _, args, path=path: take(path, args[0])))
            with suppress(_Enough):
                seen[streams.LEAVING] = self._skeleton.forward(block, batch)
        return seen

    def _experts(self, path: str) -> Iterator[Event]:
        """Every expert by the tokens that the router sent to it; those that got few by the tokens of all."""
        experts: Experts = self._block.get_submodule(path)
        if not any(name.startswith(f"{path}.") for name in self._planned):
            return
        if self._originals and "experts" not in self._skeleton.told:
            self._skeleton.told.add("experts")
            yield Note("Experts are not fitted to the original: there the router sends them other tokens.")
        rows, sent = self._routed_rows(experts)
        spread = rows[:: -(-len(rows) // SPREAD)]
        few = []
        for number, expert in enumerate(experts):
            own = torch.where((sent == number).any(1))[0]
            if len(own) < min(ENOUGH, len(rows)):
                few.append((number, len(own)))
            used = rows[own] if len(own) >= min(ENOUGH, len(rows)) else spread
            self._routed |= {f"{path}.{number}.{leaf}": len(own) for leaf in ("gate_proj", "up_proj", "down_proj")}
            yield from self._expert(f"{path}.{number}", expert, used.to(self._skeleton.device))
        if few:
            yield Note(
                "Block {block}: {count} of {total} experts got fewer than {enough} calibration tokens and were "
                "calibrated with those of all experts: {experts}.",
                {
                    "block": self._index, "count": len(few), "total": len(experts), "enough": ENOUGH,
                    "experts": ", ".join(f"{number} ({tokens})" for number, tokens in few),
                },
                "warning",
            )  # fmt: skip

    def _routed_rows(self, experts: Experts) -> tuple[Tensor, Tensor]:
        """What enters the experts, [tokens, hidden], and where each token goes, [tokens, k]; both on the CPU."""
        rows, sent = [], []

        def take(_, args: tuple[Tensor, ...]) -> None:
            rows.append(args[0].to("cpu"))
            sent.append(args[1].to("cpu"))
            raise _Enough

        with listening(experts, take):
            for batch in self._batches():
                with suppress(_Enough):
                    self._skeleton.forward(self._block, batch)
        return torch.cat(rows), torch.cat(sent)

    def _expert(self, path: str, expert: Expert, rows: Tensor) -> Iterator[Event]:
        gate, up, down = (f"{path}.{leaf}" for leaf in ("gate_proj", "up_proj", "down_proj"))
        device = self._skeleton.device
        if self._uses_awq(down) and up in self._planned:
            leaving = Moments(expert.down_proj.in_features, device)
            leaving.add(expert.activate(rows))
            self._scale_rows(expert.up_proj, down, leaving, torch.arange(expert.up_proj.out_features, device=device))
        entering = Moments(expert.gate_proj.in_features, device)
        entering.add(rows)
        for name in (gate, up):
            yield from self._quantize(name, entering)
        leaving = Moments(expert.down_proj.in_features, device)
        leaving.add(expert.activate(rows))
        yield from self._quantize(down, leaving)

    def _tell(self, known: Graph) -> Iterator[Event]:
        """Which layers go without the AWQ scales that were asked for, once for each kind."""
        fed = {feed.reader for feed in known.feeds}
        bare = [
            path
            for stage in known.stages
            for path in stage.linears
            if self._uses_awq(path) and path not in fed and not (stage.norm and self._uses_awq(*stage.linears))
        ]
        for stage in known.stages:
            if stage.experts:
                first = (f"{stage.experts}.0.gate_proj", f"{stage.experts}.0.up_proj")
                bare += [path for path in first if self._uses_awq(path)]
        new = [path for path in bare if path not in self._skeleton.told]
        self._skeleton.told.update(new)
        if new:
            yield Note(
                "No AWQ scales for {modules}: more than these layers reads the same input, so it cannot be rescaled.",
                {"modules": ", ".join(path.replace(".0.", ".*.") for path in new)},
            )


class _Enough(Exception):
    """All that was wanted of a run has been seen."""
