"""All blocks in their order: what is finished is taken over, what is left is quantized, amendments in between."""

import ctypes
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from workbench import amend, figures, recipe
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Note, Stage
from workbench.plan import Plan, Planned
from workbench.quant_events import Amended, ModuleDone
from workbench.quantization import calibration, chain, precision, targets
from workbench.quantization.activations import settled
from workbench.quantization.blocks import Skeleton
from workbench.quantization.calibration import Sequences
from workbench.quantization.checkpoint import Checkpoint, disk_bytes
from workbench.quantization.kept_blocks import KeptBlocks
from workbench.quantization.turns import turn_of
from workbench.recipe import Recipe
from workbench.remarks import FEWEST_TOKENS
from workbench.words import Sentence


class Course:
    """One walk through the blocks of `skeleton` into `result`. `plan` is what they really got, once `run` ended.

    Amendments are read from the job's `folder`. With `reuse` finished blocks are kept, and taken over where the
    model, the text, the program and the choices for all blocks up to there are the same.
    """

    def __init__(self, skeleton: Skeleton, plan: Plan, folder: Path, result: Checkpoint, reuse: bool):
        self.plan = plan
        self._skeleton, self._folder, self._result, self._reuse = skeleton, folder, result, reuse
        self._stored = _stored_dtype(skeleton, plan)
        self._hidden: list[Tensor] = []
        self._originals: list[Tensor] = []  # the same on the original's way, where layers are fitted to it
        self._kept: KeptBlocks | None = None
        self._root = ""
        self._amended = 0

    def run(self) -> Iterator[Event]:
        """The events of all linear layers, and what happens between them."""
        skeleton, sequences = self._skeleton, None
        if any(planned.choice.method != "rtn" for planned in self.plan.quantized):
            yield Stage("Reading the calibration text")
            sequences = _sequences(skeleton, self.plan.recipe)
            yield from _tell(sequences, self.plan.recipe)
            self._hidden = settled(skeleton.embed(sequences.batches()), skeleton.device)
            if self.plan.recipe.targets == "original":
                self._originals = settled(self._hidden, skeleton.device)
        if note := _shared_heads(self.plan):
            yield note
        for name in skeleton.outside(tied=self.plan.model.tied):
            self._result.add({name: skeleton.weights.read(name)})
        yield from self._amendments(0)
        fallbacks: list[str] = []
        first = 0
        if self._reuse:
            aim = self.plan.recipe.targets
            self._root = chain.root(skeleton.weights.folder, sequences, self._stored, skeleton.device, aim)
            self._kept = KeptBlocks(self._root, disk_bytes(self.plan.predicted_bytes))
            self._kept.tidy()
            first = self._kept.reach(self._links())
        with precision.quick(), precision.as_served():
            for event in self._blocks(first):
                yield event
                if isinstance(event, ModuleDone) and event.fallback:
                    fallbacks.append(event.name)
        if fallbacks:
            yield Note(
                "{count} {count:layer|layers} had to be rounded plainly: {names}.",
                {"count": len(fallbacks), "names": ", ".join(fallbacks)}, "warning",
            )  # fmt: skip

    def _blocks(self, first: int) -> Iterator[Event]:
        if first:
            yield from self._take_over(first)
        done = 0
        yield Stage("Quantizing", self._left(first))
        for index in range(first, len(self._skeleton)):
            changes = list(self._amendments(index)) if index > first else []
            if changes:
                yield from changes
                yield Stage("Quantizing", self._left(index))  # the pace and what is left are others now
                done = 0
            told: list[Event] = []
            planned = by_block(self.plan).get(index, {})
            turn = turn_of(self._skeleton, index, planned, self._hidden, self._stored, self._originals)
            for event in turn.run():
                told.append(event)
                yield event
                if isinstance(event, ModuleDone):
                    done += 1
                    yield Advanced(done)
            self._result.add(turn.tensors)
            if self._kept:
                yield from self._kept.keep(self._links()[index], turn.tensors, told, self._hidden)
            del turn  # not held while the next block is loaded
            _give_back()

    def _take_over(self, count: int) -> Iterator[Event]:
        assert self._kept is not None
        yield Stage("Taking over finished blocks", count)
        links = self._links()
        for index, link in enumerate(links[:count]):
            yield from self._kept.events(link)
            self._result.add(self._kept.tensors(link))
            yield Advanced(index + 1)
        if self._hidden and count < len(links):
            self._kept.forward(self._skeleton, links[:count], self._hidden)
            if self._originals:
                deque(targets.through(self._skeleton, count, self._originals), maxlen=0)
        yield Note(
            "{count} of {total} blocks were taken over from an earlier run.", {"count": count, "total": len(links)}
        )

    def _amendments(self, index: int) -> Iterator[Event]:
        """Take what came into the job folder since the last look, for the blocks from `index` on."""
        amendments = list(amend.read(self._folder))
        for amendment in amendments[self._amended :]:
            begin = max(index, amendment.from_block)
            try:
                plan = amend.combined(self.plan, amendment.recipe, begin)
                if plan.blocks:
                    raise WorkbenchError(plan.conflicts[0].sentence.template, **plan.conflicts[0].sentence.values)
            except WorkbenchError as error:
                reason = Sentence(error.message, error.values)
                yield Note("A change of the recipe was not taken: {reason}", {"reason": reason}, "warning")
            else:
                self.plan = plan
                yield Amended(begin, recipe.to_dict(plan.recipe))
                yield Note("From block {block} on the changed recipe is used.", {"block": begin})
        self._amended = len(amendments)

    def _links(self) -> list[str]:
        blocks = by_block(self.plan)
        return chain.links(self._root, (blocks.get(index, {}) for index in range(len(self._skeleton))))

    def _left(self, first: int) -> int:
        return sum(planned.linear.block >= first for planned in self.plan.quantized)


def by_block(plan: Plan) -> dict[int, dict[str, Planned]]:
    """The linears to quantize, by block and name."""
    blocks: dict[int, dict[str, Planned]] = {}
    for planned in plan.quantized:
        blocks.setdefault(planned.linear.block, {})[planned.linear.name] = planned
    return blocks


def _sequences(skeleton: Skeleton, recipe: Recipe) -> Sequences:
    own = recipe.calibration_file
    texts = calibration.documents(Path(own)) if own else calibration.own_text()
    tokenizer = calibration.tokenizer_of(skeleton.weights.folder)
    length = min(recipe.length, skeleton.positions or recipe.length)
    return calibration.sequences(texts, tokenizer, length, recipe.samples * recipe.length, recipe.seed)


def _give_back() -> None:
    """Return to the system what is free between the tensors: else the holes grow from block to block."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc has it
        trim(0)


def _tell(sequences: Sequences, recipe: Recipe) -> Iterator[Event]:
    used = {
        "samples": len(sequences.pieces), "tokens": sequences.tokens,
        "asked_samples": recipe.samples, "asked_length": recipe.length,
    }  # fmt: skip
    yield Note(
        "Calibration: {samples} {samples:sample|samples}, {tokens} tokens; you asked for {asked_samples} × "
        "{asked_length}.",
        used,
    )
    if sequences.tokens < FEWEST_TOKENS:
        yield Note(
            "{tokens} calibration tokens are few; with at least {enough} the result is more reliable.",
            {"tokens": figures.tokens(sequences.tokens), "enough": figures.tokens(FEWEST_TOKENS)}, "warning",
        )  # fmt: skip


def _shared_heads(plan: Plan) -> Note | None:
    model = plan.model
    scaled = [planned for planned in plan.quantized if planned.linear.role == "o" and "awq" in planned.choice.method]
    if not scaled or not model.heads or not model.kv_heads or model.heads == model.kv_heads:
        return None
    return Note(
        "o_proj: AWQ scales shared over {repeat} query heads, {layers} {layers:layer|layers}.",
        {"repeat": model.heads // model.kv_heads, "layers": len(scaled)},
    )


def _stored_dtype(skeleton: Skeleton, plan: Plan) -> torch.dtype:
    """The dtype that scales and folded norms are kept in: that of the weights."""
    first = plan.quantized[0].linear.name if plan.quantized else None
    return skeleton.weights.read(f"{first}.weight").dtype if first else torch.bfloat16
