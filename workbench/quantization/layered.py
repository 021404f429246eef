"""One block's turn: each part sees inputs that come through what is already quantized before it.

This is the short way for blocks built like Llama's, which is walked part by part; `walked.py` is the way for others.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from workbench.events import Event
from workbench.plan import Planned
from workbench.quantization.blocks import Skeleton
from workbench.quantization.graph import repeated
from workbench.quantization.turn import Turn

KEEP_BYTES = 1 << 30  # what a pass may keep of its results instead of computing them a second time


class LayeredTurn(Turn):
    """`planned` may have any keys; each of its linears has a role of its own here."""

    def __init__(
        self, skeleton: Skeleton, index: int, planned: Mapping[str, Planned], hidden: list[Tensor], stored: torch.dtype
    ):
        block = skeleton.load(index)
        attention, mlp = block.self_attn, block.mlp
        linears = {
            "q": attention.q_proj, "k": attention.k_proj, "v": attention.v_proj, "o": attention.o_proj,
            "gate": mlp.gate_proj, "up": mlp.up_proj, "down": mlp.down_proj,
        }  # fmt: skip
        by_role = {entry.linear.role: entry for entry in planned.values()}
        super().__init__(skeleton, index, block, by_role, linears, hidden, stored)

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
        entering, leaving = self._moments("q"), self._moments("o")
        for batch in self._batches():
            normed = block.input_layernorm(batch)
            entering.add(normed)
            if scale_values:
                leaving.add(skeleton.attend(block, normed))
        if scale_values:
            self._scale_rows(self._linears["v"], "o", leaving, rows.to(skeleton.device))
        if self._uses_awq("q", "k", "v"):
            entering = self._scale_inputs(("q", "k", "v"), block.input_layernorm, entering)
        for role in ("q", "k", "v"):
            yield from self._quantize(role, entering)

        leaving, cores = self._moments("o"), []
        for batch in self._batches():
            cores.append(skeleton.attend(block, block.input_layernorm(batch)))
            leaving.add(cores[-1])
            cores[-1] = cores[-1].to(self._hidden[0].device)
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
            rows = torch.arange(self._linears["up"].out_features, device=skeleton.device)
            self._scale_rows(self._linears["up"], "down", leaving, rows)
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
                kept.append(active.to(self._hidden[0].device))
        yield from self._quantize("down", leaving)
        for at, batch in enumerate(self._batches()):
            active = kept[at].to(skeleton.device) if kept else skeleton.activate(block, norm(batch))
            self._add(at, self._linears["down"](active))
