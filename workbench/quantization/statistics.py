"""The job that gathers a model's calibration statistics: what enters each layer, and how much each output matters."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench import lock, moments_kept
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.events import Advanced, Event, Finished, Note, Stage
from workbench.quant_events import MomentsKept
from workbench.quantization import calibration, precision
from workbench.quantization.activations import settled
from workbench.quantization.blocks import Skeleton, device_of
from workbench.quantization.gathering import DIAGONAL, Gathering, check_finite, is_whole, write
from workbench.recipe import Recipe

PROBE_TOKENS = 3072  # that the outputs are weighed on
ROWS = 256  # positions whose logits are held at once


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """spec: model (folder), recipe (plain values; its calibration counts); optionally threads, device, limit (bytes).

    One MomentsKept per block, then the weights of the outputs. What is already there is not gathered again.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    source, recipe = Path(spec["model"]), recipes.from_dict(spec["recipe"])
    place = moments_kept.folder_of(source, recipe)
    yield from gather(source, recipe, place, device_of(spec), spec.get("limit"))
    yield Finished(str(place), moments_kept.size(place))


def gather(
    source: Path, recipe: Recipe, place: Path, device: torch.device, limit: int | None = None
) -> Iterator[Event]:
    """Fill `place` with what it lacks. A second process waits for the first; what was killed goes on at its block."""
    if moments_kept.complete(place):
        return
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as file:
        yield from lock.hold(file, Note("Another process is gathering the statistics; waiting for it."))
        if not moments_kept.complete(place):
            for left in place.glob(".*.safetensors.*"):
                left.unlink()  # of a process that was killed while it wrote
            with precision.quick():
                yield from _Walk(source, recipe, place, device, limit).run()


class _Walk:
    """The unquantized model once forwards with the calibration text, and once backwards with a little of it."""

    def __init__(self, source: Path, recipe: Recipe, place: Path, device: torch.device, limit: int | None):
        self._model = catalog.inspect(source)
        self._recipe, self._place, self._device, self._limit = recipe, place, device, limit
        self._skeleton = Skeleton(source, device)

    def run(self) -> Iterator[Event]:
        check_finite(self._skeleton.embedding, self._skeleton.weights.read(self._skeleton.embedding))
        self._checked(0)
        self._skeleton.prove()
        yield Stage("Reading the calibration text")
        pieces = self._pieces()
        batches = list(calibration.Sequences(pieces).batches())
        probe = torch.tensor(_spread(pieces))
        widest = self._widest()
        if wider := {linear.in_features for linear in self._model.linears if linear.in_features > widest}:
            yield Note(
                "Layers of {widths} inputs: their statistics would take too much space, so their errors are estimates.",
                {"widths": ", ".join(map(str, sorted(wider)))},
            )  # fmt: skip
        states, probed = settled(self._skeleton.embed(batches), self._device), self._skeleton.embed([probe])[0]
        entering: list[Tensor] = []
        lacking = [index for index in range(len(self._skeleton)) if not is_whole(self._file(index))]
        yield Stage("Gathering calibration statistics", len(self._skeleton))
        for index in range(len(self._skeleton)):
            block = self._checked(index)
            if lacking and index <= lacking[-1]:
                yield from self._gather(index, block, states, widest, index in lacking)
            # Half the space, and what is weighed is an average over thousands of tokens.
            entering.append(probed.to(torch.bfloat16))
            with torch.no_grad():
                probed = self._skeleton.forward(block, probed.to(self._device)).cpu()
            yield Advanced(index + 1)
        del states
        yield from self._weigh(entering, probed)

    def _checked(self, index: int) -> nn.Module:
        block = self._skeleton.load(index)
        for name, parameter in block.named_parameters():
            check_finite(self._skeleton.name(index, name), parameter)
        return block

    def _gather(self, index: int, block: nn.Module, states: list[Tensor], widest: int, wanted: bool) -> Iterator[Event]:
        gathering = Gathering(self._linears(index, block) if wanted else {}, widest, self._device)
        with torch.no_grad(), gathering.listening():
            for at, state in enumerate(states):
                states[at] = self._skeleton.forward(block, state.to(self._device)).to(state.device)
                gathering.next_batch()
        if wanted:
            estimated = gathering.save(self._file(index))
            yield MomentsKept(index, max((each.tokens for each in gathering.moments.values()), default=0), estimated)

    def _weigh(self, entering: list[Tensor], leaving: Tensor) -> Iterator[Event]:
        """The mean square of the gradient of the answer's log-likelihood by each output: the diagonal of the Fisher
        information, for which the following tokens are drawn from the model itself."""
        yield Stage("Weighing the outputs", len(entering))
        weights: dict[str, Tensor] = {}
        gradient = self._last_gradient(leaving.to(self._device))
        for index in reversed(range(len(entering))):
            block = self._skeleton.load(index)
            linears = self._linears(index, block)
            for name, linear in linears.items():
                linear.register_forward_hook(lambda _, given, output, name=name: _record(output, name, weights))
            inputs = entering.pop().to(self._device, torch.float32).requires_grad_()
            with torch.enable_grad():
                self._skeleton.forward(block, inputs).backward(gradient)
            gradient = inputs.grad
            yield Advanced(len(self._skeleton) - index)
        tokens = leaving.shape[0] * leaving.shape[1]
        write(self._place / moments_kept.OUTPUTS, {name: (total / tokens).cpu() for name, total in weights.items()})

    def _last_gradient(self, leaving: Tensor) -> Tensor:
        """The gradient by what leaves the last block, [batch, length, hidden]."""
        norm, head = self._skeleton.last()
        state = leaving.requires_grad_()
        with torch.enable_grad():
            normed = norm(state)
        flat, gradient = normed.detach().flatten(0, 1), torch.empty_like(normed).flatten(0, 1)
        chance = torch.Generator(flat.device).manual_seed(self._recipe.seed)
        for start in range(0, len(flat), ROWS):
            rows = flat[start : start + ROWS].requires_grad_()
            with torch.enable_grad():
                likely = torch.log_softmax(self._skeleton.logits(rows @ head.T), -1)
                drawn = torch.multinomial(likely.detach().exp(), 1, generator=chance)
                gradient[start : start + ROWS] = torch.autograd.grad(-likely.gather(1, drawn).sum(), rows)[0]
        normed.backward(gradient.view_as(normed))
        return state.grad

    def _linears(self, index: int, block: nn.Module) -> dict[str, nn.Linear]:
        prefix, modules = self._skeleton.name(index) + ".", dict(block.named_modules())
        names = [linear.name for linear in self._model.linears if linear.name.startswith(prefix)]
        found = {name: modules.get(self._skeleton.path(name, block)) for name in names}
        return {name: module for name, module in found.items() if isinstance(module, nn.Linear)}

    def _pieces(self) -> tuple[tuple[int, ...], ...]:
        own = self._recipe.calibration_file
        texts = calibration.documents(Path(own)) if own else calibration.own_text()
        length = min(self._recipe.length, self._skeleton.positions or self._recipe.length)
        budget = moments_kept.samples(self._recipe) * self._recipe.length
        tokenizer = calibration.tokenizer_of(self._skeleton.weights.folder)
        return calibration.sequences(texts, tokenizer, length, budget, self._recipe.seed).pieces

    def _widest(self) -> int:
        """The widest input whose moments are kept whole. What is wider would not fit, or leave others no room."""
        # Layers under one parent share their input, but for the one that reads what they make.
        inputs = {(linear.parent, linear.role in ("o", "down"), linear.in_features) for linear in self._model.linears}
        sizes = sorted(width for *_, width in inputs)
        spare = self._limit or moments_kept.spare()
        taken = sum(4 * width * DIAGONAL for width in sizes)
        moments_kept.make_room(self._place, min(spare, sum(4 * width * width for width in sizes)))
        moments_kept.check_space(taken)
        widest = 0
        for width in sorted(set(sizes)):
            taken += sizes.count(width) * 4 * width * (width - min(width, DIAGONAL))
            if taken > spare:
                break
            widest = width
        return widest

    def _file(self, index: int) -> Path:
        return moments_kept.block_file(self._place, index)


def _record(output: Tensor, name: str, weights: dict[str, Tensor]) -> None:
    def add(gradient: Tensor) -> None:
        total = gradient.square().flatten(0, -2).sum(0)
        weights[name] = weights[name] + total if name in weights else total

    if output.requires_grad:
        output.register_hook(add)


def _spread(pieces: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """Full-length sequences from everywhere in the text, about PROBE_TOKENS in all."""
    length = max(map(len, pieces))
    full = [piece for piece in pieces if len(piece) == length]
    count = max(1, min(len(full), PROBE_TOKENS // length))
    return [full[at * len(full) // count] for at in range(count)]
