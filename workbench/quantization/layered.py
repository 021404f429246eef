"""One block's turn: each part sees inputs that come through what is already quantized before it.

This is the short way for blocks built like Llama's, which is walked part by part; `walked.py` is the way for others.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from workbench.events import Event
from workbench.plan import Planned
from workbench.quantization import precision
from workbench.quantization.blocks import Skeleton
from workbench.quantization.graph import repeated
from workbench.quantization.moments import Moments
from workbench.quantization.targets import Lack
from workbench.quantization.turn import Turn

KEEP_BYTES = 1 << 30  # what a pass may keep of its results instead of computing them a second time


class LayeredTurn(Turn):
    """`planned` may have any keys; each of its linears has a role of its own here."""

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
        attention, mlp = block.self_attn, block.mlp
        linears = {
            "q": attention.q_proj, "k": attention.k_proj, "v": attention.v_proj, "o": attention.o_proj,
            "gate": mlp.gate_proj, "up": mlp.up_proj, "down": mlp.down_proj,
        }  # fmt: skip
        by_role = {entry.linear.role: entry for entry in planned.values()}
        super().__init__(skeleton, index, block, by_role, linears, hidden, stored, originals)
        self._original = skeleton.load(index) if originals else block

    @torch.no_grad()
    def run(self) -> Iterator[Event]:
        """The events of its linear layers, each when it is packed."""
        yield from self._attention()
        yield from self._mlp()
        self._keep_the_rest()
        yield from self._tell_moved()

    def _attention(self) -> Iterator[Event]:
        skeleton, block = self._skeleton, self._block
        values = self._linears["v"].out_features
        rows = repeated(values, self._linears["o"].in_features // values, block.self_attn.head_dim)
        scale_values = self._uses_awq("o") and "v" in self._planned
        entering, leaving, lack = self._moments("q"), self._moments("o"), self._lack("q", "q")
        for at, batch in enumerate(self._batches()):
            normed = block.input_layernorm(batch)
            entering.add(normed)
            if self._originals:
                lack.add(self._original_attention(at) - normed, normed)
            if scale_values:
                leaving.add(self._counted(at, skeleton.attend(block, normed)))
        if self._originals:
            for role in ("q", "k", "v"):
                self._move(role, self._linears[role].weight @ lack.matrix, entering)
        if scale_values:
            self._scale_rows(self._linears["v"], "o", leaving, rows.to(skeleton.device))
        if self._uses_awq("q", "k", "v"):
            entering = self._scale_inputs(("q", "k", "v"), block.input_layernorm, entering)
        for role in ("q", "k", "v"):
            yield from self._quantize(role, entering)

        leaving, lack, cores = self._moments("o"), self._lack("q", "o"), []
        for at, batch in enumerate(self._batches()):
            cores.append(skeleton.attend(block, block.input_layernorm(batch)))
            self._see("o", at, batch, cores[-1], leaving, lack)
            cores[-1] = cores[-1].to(self._hidden[0].device)
        if self._originals:
            self._move("o", lack.matrix, leaving)
        yield from self._quantize("o", leaving)
        for at, core in enumerate(cores):
            self._add(at, precision.through(self._linears["o"], core.to(skeleton.device)))

    def _mlp(self) -> Iterator[Event]:
        skeleton, block = self._skeleton, self._block
        norm = block.post_attention_layernorm
        scale_rows = self._uses_awq("down") and "up" in self._planned
        entering, leaving, lack = self._moments("gate"), self._moments("down"), self._lack("gate", "gate")
        for at, batch in enumerate(self._batches()):
            normed = norm(batch)
            entering.add(normed)
            if self._originals:
                lack.add(self._original_mlp(at) - normed, normed)
            if scale_rows:
                leaving.add(self._counted(at, skeleton.activate(block, normed)))
        if self._originals:
            for role in ("gate", "up"):
                self._move(role, self._linears[role].weight @ lack.matrix, entering)
        if scale_rows:
            rows = torch.arange(self._linears["up"].out_features, device=skeleton.device)
            self._scale_rows(self._linears["up"], "down", leaving, rows)
        if self._uses_awq("gate", "up"):
            entering = self._scale_inputs(("gate", "up"), norm, entering)
        for role in ("gate", "up"):
            yield from self._quantize(role, entering)

        leaving, lack, kept = self._moments("down"), self._lack("gate", "down"), []
        size = sum(batch.shape[0] * batch.shape[1] for batch in self._hidden) * self._linears["down"].in_features * 4
        for at, batch in enumerate(self._batches()):
            active = skeleton.activate(block, norm(batch))
            self._see("down", at, batch, active, leaving, lack)
            if size <= KEEP_BYTES:
                kept.append(active.to(self._hidden[0].device))
        if self._originals:
            self._move("down", lack.matrix, leaving)
        yield from self._quantize("down", leaving)
        for at, batch in enumerate(self._batches()):
            active = kept[at].to(skeleton.device) if kept else skeleton.activate(block, norm(batch))
            self._add(at, precision.through(self._linears["down"], active))

    def _see(self, role: str, at: int, batch: Tensor, inputs: Tensor, moments: Moments, lack: Lack) -> None:
        """Gather what enters o or down, and what then still lacks to the original's stream behind it."""
        moments.add(self._counted(at, inputs))
        if self._originals:
            missing = self._originals[at].to(batch.device) - batch - precision.through(self._linears[role], inputs)
            lack.add(self._counted(at, missing), self._counted(at, inputs))

    def _original_attention(self, at: int) -> Tensor:
        """What enters q, k and v in the original, whose batch goes on to behind its attention."""
        batch, block = self._originals[at].to(self._skeleton.device), self._original
        normed = block.input_layernorm(batch)
        after = batch + precision.through(block.self_attn.o_proj, self._skeleton.attend(block, normed))
        self._originals[at] = after.to(self._originals[at].device)
        return normed

    def _original_mlp(self, at: int) -> Tensor:
        """What enters gate and up in the original, whose batch goes on to behind the block."""
        batch, block = self._originals[at].to(self._skeleton.device), self._original
        normed = block.post_attention_layernorm(batch)
        after = batch + precision.through(block.mlp.down_proj, self._skeleton.activate(block, normed))
        self._originals[at] = after.to(self._originals[at].device)
        return normed

    def _lack(self, missing: str, inputs: str) -> Lack:
        """Sized by what the two layers read; all but empty where nothing is aimed at."""
        sizes = [self._linears[role].in_features if self._originals else 0 for role in (missing, inputs)]
        return Lack(*sizes, self._skeleton.device)
