"""How far a quantized model is from its original, on text that no calibration has seen."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Stage
from workbench.plan import Planned
from workbench.quant_events import QualityMeasured
from workbench.quantization import calibration
from workbench.quantization.blocks import Skeleton, device_of
from workbench.quantization.calibration import Sequences
from workbench.quantization.rounding import nearest

HELD_TOKENS = 9_000
LENGTH = 512
ROWS = 64  # positions whose logits are held at once


class Reader(Protocol):
    """Something that gives a model block by block."""

    def load(self, index: int) -> nn.Module: ...

    def embed(self, batches: Iterator[Tensor]) -> list[Tensor]: ...

    def last(self) -> tuple[nn.Module, Tensor]: ...


@dataclass(frozen=True)
class Plain:
    """The original with plain rounding (RTN) at a plan, made in passing and never written."""

    original: Skeleton
    planned: Mapping[int, Mapping[str, Planned]]

    def load(self, index: int) -> nn.Module:
        block = self.original.load(index)
        for planned in self.planned.get(index, {}).values():
            name = planned.linear.name.removeprefix(self.original.name(index) + ".")
            linear = block.get_submodule(name)
            stored = self.original.weights.read(planned.linear.name + ".weight").dtype
            result = nearest(linear.weight, planned.choice, stored)
            linear.weight.copy_(result.grid.values(result.integers))
        return block

    def embed(self, batches: Iterator[Tensor]) -> list[Tensor]:
        return self.original.embed(batches)

    def last(self) -> tuple[nn.Module, Tensor]:
        return self.original.last()


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """spec: original (folder), candidates (folders: plain or pack-quantized); optionally tokens, threads, device.

    One QualityMeasured per candidate, under its folder's name, all on the same held tokens.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    device = device_of(spec)
    original = Skeleton(Path(spec["original"]), device)
    original.prove()
    sequences = held(original.weights.folder, int(spec.get("tokens") or HELD_TOKENS))
    candidates = {Path(path).name: Skeleton(Path(path), device) for path in spec["candidates"]}
    yield from compare(original, candidates, sequences)


def held(model: Path, tokens: int) -> Sequences:
    """The same sequences for every candidate: documents of all kinds, mixed by a fixed seed."""
    tokenizer = calibration.tokenizer_of(model)
    return calibration.sequences(calibration.held_text(), tokenizer, LENGTH, tokens, seed=0)


@torch.no_grad()
def compare(original: Skeleton, candidates: Mapping[str, Reader], sequences: Sequences) -> Iterator[Event]:
    """Run all models side by side, one block at a time, and compare their next-token distributions."""
    readers: list[Reader] = [original, *candidates.values()]
    for name, reader in candidates.items():
        if isinstance(reader, Skeleton) and _shape(reader) != _shape(original):
            raise WorkbenchError(
                "{name} is not made from the same model as the original.",
                "Compare a model with its own quantized form.",
                name=name,
            )
    yield Stage("Measuring the quality", len(original) + 1)
    batches = list(sequences.batches())
    hidden = [reader.embed(batches) for reader in readers]
    for index in range(len(original)):
        for reader, states in zip(readers, hidden, strict=True):
            block = reader.load(index)
            for at, state in enumerate(states):
                states[at] = original.forward(block, state.to(original.device)).to(state.device)
        yield Advanced(index + 1)
    ends = list(_ends(readers))
    sums = [_Sums() for _ in readers]
    for at, batch in enumerate(batches):
        following = batch[:, 1:].reshape(-1).to(original.device)
        states = [_normed(norm, states[at], original.device) for (norm, _), states in zip(ends, hidden, strict=True)]
        for start in range(0, len(following), ROWS):
            rows = slice(start, start + ROWS)
            right = log_softmax(original.logits(states[0][rows] @ ends[0][1].T), -1)
            sums[0].add(right, right, following[rows])
            for own, state, (_, head) in zip(sums[1:], states[1:], ends[1:], strict=True):
                own.add(right, log_softmax(original.logits(state[rows] @ head.T), -1), following[rows])
    yield Advanced(len(original) + 1)
    original_perplexity = sums[0].perplexity("the original")
    for name, own in zip(candidates, sums[1:], strict=True):
        yield QualityMeasured(
            name=name,
            tokens=own.tokens,
            kl=own.kl / own.tokens,
            perplexity=own.perplexity(name),
            original_perplexity=original_perplexity,
            top1_agreement=own.same / own.tokens,
        )


def _ends(readers: list[Reader]) -> Iterator[tuple[nn.Module, Tensor]]:
    """The final norm and the head of each; heads of the same values, as a result has its original's, are held once."""
    heads: list[Tensor] = []
    for reader in readers:
        norm, head = reader.last()
        heads.append(next((other for other in heads if torch.equal(other, head)), head))
        del head  # not held while the next is read
        yield norm, heads[-1]


@dataclass(slots=True)
class _Sums:
    tokens: int = 0
    kl: float = 0.0
    loss: float = 0.0
    same: int = 0

    def add(self, right: Tensor, ours: Tensor, following: Tensor) -> None:
        """right, ours: log probabilities [rows, vocab] of the original and of this model; following: [rows]."""
        self.tokens += len(following)
        self.kl += (right.exp() * (right - ours)).sum(dtype=torch.float64).item()
        self.loss -= ours.gather(1, following[:, None]).sum(dtype=torch.float64).item()
        self.same += int((right.argmax(-1) == ours.argmax(-1)).sum())

    def perplexity(self, name: str) -> float:
        """exp of the mean loss. Raises WorkbenchError where the model `name` gives no numbers to speak of."""
        try:
            if not math.isfinite(self.kl):
                raise OverflowError
            return math.exp(self.loss / self.tokens)
        except OverflowError as error:
            raise WorkbenchError(
                "What {name} answers is not finite, so it cannot be measured.",
                "Its weights are too large for their type, or damaged: fetch the model again.", name=name,
            ) from error  # fmt: skip


def _normed(norm: nn.Module, states: Tensor, device: torch.device) -> Tensor:
    """Every position that has a following token, [tokens, hidden]."""
    return norm(states[:, :-1].to(device)).flatten(0, 1)


def _shape(skeleton: Skeleton) -> tuple:
    config = skeleton.config
    return len(skeleton), config.hidden_size, config.vocab_size
