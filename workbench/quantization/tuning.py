"""Tuning of the whole quantized model: its scales and norms are trained until its answers come nearer to the
original's, which no layer-by-layer method aims at. All blocks are in memory for it, the integers stay as they are.

Learning scales after rounding is the second phase of EfficientQAT (Chen et al., 2024, arXiv 2407.11062); here the
original's own answers are the aim (KL divergence), so that little text is enough.
"""

import copy
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor, nn

from workbench.events import Advanced, Event, Note, Stage
from workbench.plan import Planned
from workbench.quantization import targets
from workbench.quantization.blocks import Skeleton
from workbench.quantization.calibration import Sequences
from workbench.quantization.lessons import ROWS, Lessons
from workbench.quantization.names import in_code
from workbench.quantization.tuned import Tuned

RATE = 2e-3  # of a scale or a norm, for a step of Adam
STEP_TOKENS = 1024
WARM_STEPS = 5
HELD = 12  # one of so many sequences is not learnt from, and tells whether the tuning helped
SHARE_OF_MEMORY = 0.6  # of what is free


class Tuning:
    """`tensors` are those of all blocks as they lie on disk, by full name: `run` changes scales, norms and biases."""

    def __init__(
        self, skeleton: Skeleton, planned: Mapping[int, Mapping[str, Planned]], tensors: dict[str, Tensor], passes: int
    ):
        self._skeleton, self._planned, self._tensors, self._passes = skeleton, planned, tensors, passes
        self._product = _fast_dtype(skeleton.device)

    def run(self, sequences: Sequences, seed: int) -> Iterator[Event]:
        """The events. Where memory lacks or nothing is won, all stays as it was, and that is said."""
        batches = [part for batch in sequences.batches() for part in batch.split(max(1, STEP_TOKENS // batch.shape[1]))]
        needed, free = self._needed(), _free(self._skeleton.device)
        if needed > SHARE_OF_MEMORY * free:
            yield Note(
                "The whole model was not tuned: that would take {needed} GB of memory, and {free} GB are free.",
                {"needed": round(needed / 1e9, 1), "free": round(free / 1e9, 1)}, "warning",
            )  # fmt: skip
            return
        yield Stage("Reading the original's answers", len(self._skeleton))
        leaving = self._skeleton.embed(batches)
        for done in targets.through(self._skeleton, len(self._skeleton), leaving):
            yield Advanced(done)
        yield from self._tune(Lessons(self._skeleton, batches, leaving, self._product), seed)

    def _tune(self, lessons: Lessons, seed: int) -> Iterator[Event]:
        blocks = [self._opened(index) for index in range(len(self._skeleton))]
        held = range(0, len(lessons), HELD)
        learnt = [at for at in range(len(lessons)) if at not in held]
        chance = random.Random(seed)
        order = [at for _ in range(self._passes) for at in chance.sample(learnt, len(learnt))]
        yield Stage("Tuning the whole model", len(order) + 2 * len(held))
        before = sum(lessons.divergence(blocks, at) for at in held)
        yield Advanced(len(held))
        adam = torch.optim.Adam(self._trainable(blocks), betas=(0.9, 0.95))
        for step, at in enumerate(order):
            share = min(1.0, (step + 1) / WARM_STEPS) * (0.525 + 0.475 * math.cos(math.pi * step / len(order)))
            for group in adam.param_groups:
                group["lr"] = share * group["most"]
            lessons.learn(blocks, at)
            adam.step()
            adam.zero_grad()
            yield Advanced(len(held) + step + 1)
        changed = self._settled(blocks)
        after = sum(lessons.divergence(blocks, at) for at in held)
        yield Advanced(len(order) + 2 * len(held))
        told = {"before": round(before / len(held), 4), "after": round(after / len(held), 4)}
        if after < before:
            self._tensors |= changed
            yield Note("Tuning the whole model: KL {before} → {after} on calibration text held back from it.", told)
        else:
            yield Note(
                "Tuning the whole model won nothing (KL {before} → {after} on text held back from it) and was dropped.",
                told, "warning",
            )  # fmt: skip

    def _opened(self, index: int) -> nn.Module:
        """The quantized block with trainable layers in place of its packed ones."""
        reader = copy.copy(self._skeleton)
        reader.weights = _Held(self._tensors)
        block = reader.load(index)
        for entry in self._planned.get(index, {}).values():
            path = self._skeleton.path(entry.linear.name, block)
            parent, _, leaf = path.rpartition(".")
            linear = block.get_submodule(path)
            scale = self._tensors[f"{entry.linear.name}.weight_scale"].to(self._skeleton.device, torch.float32)
            setattr(block.get_submodule(parent), leaf, Tuned(linear.weight.detach(), scale, linear.bias, self._product))
        return block

    def _trainable(self, blocks: list[nn.Module]) -> list[dict]:
        """Adam's groups, each with the `most` that a step may be: a share of the scale or of the vector's size."""
        changes = [layer.change for block in blocks for layer in block.modules() if isinstance(layer, Tuned)]
        groups = [{"params": changes, "most": RATE}]
        for vector in self._vectors(blocks).values():
            vector.requires_grad_()
            groups.append({"params": [vector], "most": RATE * vector.detach().square().mean().sqrt().item()})
        return groups

    def _vectors(self, blocks: list[nn.Module]) -> dict[str, nn.Parameter]:
        """Norms and biases, by their full name on disk."""
        found = {}
        for index, block in enumerate(blocks):
            own, prefix = dict(block.named_parameters()), self._skeleton.name(index) + "."
            for full, tensor in self._tensors.items():
                if full.startswith(prefix) and tensor.dim() == 1 and tensor.is_floating_point():
                    name = full.removeprefix(prefix)
                    name = name if name in own else in_code(name)
                    if name in own:
                        found[full] = own[name]
        return found

    @torch.no_grad()
    def _settled(self, blocks: list[nn.Module]) -> dict[str, Tensor]:
        """What changes on disk, by full name; from now on the blocks compute with just these values."""
        changed = {}
        for full, vector in self._vectors(blocks).items():
            changed[full] = vector.to(self._tensors[full].dtype).cpu()
            vector.copy_(changed[full])
        for index, block in enumerate(blocks):
            for entry in self._planned.get(index, {}).values():
                layer = block.get_submodule(self._skeleton.path(entry.linear.name, block))
                full = f"{entry.linear.name}.weight_scale"
                changed[full] = layer.scale.to(self._tensors[full].dtype).cpu()
                layer.settle(changed[full].to(layer.base))
        return changed

    def _needed(self) -> int:
        """Bytes, about: integers, scales with what Adam keeps of them, the head, and what a step holds."""
        linears = [entry.linear for block in self._planned.values() for entry in block.values()]
        scales = sum(self._tensors[f"{linear.name}.weight_scale"].numel() for linear in linears)
        hidden, vocabulary = self._skeleton.config.hidden_size, self._skeleton.config.vocab_size
        passing = sum(2 * linear.in_features + 4 * linear.out_features for linear in linears)
        widest = max(linear.weights for linear in linears)
        return (
            sum(linear.weights for linear in linears) + 20 * scales + 4 * hidden * vocabulary
            + 3 * STEP_TOKENS * passing + 20 * ROWS * vocabulary + 12 * widest
        )  # fmt: skip


@dataclass(frozen=True)
class _Held:
    """Tensors in memory, read as Skeleton reads those on disk."""

    tensors: Mapping[str, Tensor]

    def below(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}


def _free(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def _fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where products in it are quicker than in float32."""
    fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if fast else torch.float32
