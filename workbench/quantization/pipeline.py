"""The quantization job from the model's folder to a verified checkpoint, as one generator of events."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from workbench import plan as plans
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Finished, ModuleDone, Note, Stage
from workbench.measure import quality
from workbench.plan import Conflict, Plan, Planned
from workbench.quantization import calibration, place, verify
from workbench.quantization.blocks import Skeleton, device_of
from workbench.quantization.calibration import Sequences
from workbench.quantization.checkpoint import Checkpoint
from workbench.quantization.layered import BlockTurn
from workbench.recipe import Recipe

FEW_TOKENS = 16_000
SIDE_BYTES = 64 << 20  # tokenizer and the like, beside the weights that the plan predicts


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """Quantize and publish. spec: model, output (folders), recipe (plain values); optionally threads, device
    ("cpu", "cuda"), held_tokens (0: do not measure), measure_rtn (also plain rounding at the same plan) and replace.

    Nothing lies under the output's name before the result is written, verified and measured. With `replace` an
    earlier result there stays until then; without, it is refused. However this ends, nothing half-written stays.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    source, target = Path(spec["model"]), Path(spec["output"])
    recipe = recipes.from_dict(spec["recipe"])
    plan = plans.make(catalog.inspect(source), recipe, target)
    for conflict in plan.conflicts:
        # These two are judged below: an earlier result may be replaced, and what a killed run left gives space back.
        if conflict.code not in ("output_exists", "no_space"):
            raise _refusal(conflict)
    place.purge(target)
    place.check_name(target, bool(spec.get("replace")))
    place.check_space(target, plan.predicted_bytes + SIDE_BYTES)
    skeleton = Skeleton(source, device_of(spec))
    if not skeleton.linears.issuperset(planned.linear.name for planned in plan.quantized):
        skeleton.refuse()
    result = Checkpoint(source, target, plan)
    try:
        result.open()
        yield from _scan(skeleton)
        skeleton.prove()
        yield from _quantize(skeleton, plan, result)
        yield Stage("Writing and verifying the result")
        result.finish()
        verify.check(result.folder, plan, result.names)
        if held := int(spec.get("held_tokens", quality.HELD_TOKENS)):
            yield from _measure(skeleton, plan, result, held, bool(spec.get("measure_rtn")))
        size = result.publish()
    finally:
        result.discard()
    yield Finished(str(target), size)


def _scan(skeleton: Skeleton) -> Iterator[Event]:
    """A value that is no number would spoil the whole run, so it is looked for first."""
    weights = skeleton.weights
    names = list(weights)
    yield Stage("Checking the weights", len(names))
    for done, name in enumerate(names, 1):
        tensor = weights.read(name)
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WorkbenchError(
                "The tensor {name} holds {count} values that are not finite.",
                "The model is damaged: fetch it again.",
                name=name, count=int((~torch.isfinite(tensor)).sum()),
            )  # fmt: skip
        if done % 50 == 0 or done == len(names):
            yield Advanced(done)


def _quantize(skeleton: Skeleton, plan: Plan, result: Checkpoint) -> Iterator[Event]:
    stored = _stored_dtype(skeleton, plan)
    hidden: list[torch.Tensor] = []
    if any(planned.choice.method != "rtn" for planned in plan.quantized):
        yield Stage("Reading the calibration text")
        sequences = _sequences(skeleton, plan.recipe)
        yield from _tell(sequences, plan.recipe)
        hidden = skeleton.embed(sequences.batches())
    if note := _shared_heads(plan):
        yield note
    blocks = by_block(plan)
    yield Stage("Quantizing", len(plan.quantized))
    result.add({name: skeleton.weights.read(name) for name in skeleton.outside(tied=plan.model.tied)})
    done, fallbacks = 0, []
    for index in range(len(skeleton)):
        turn = BlockTurn(skeleton, index, blocks.get(index, {}), hidden, stored)
        for event in turn.run():
            yield event
            if isinstance(event, ModuleDone):
                done += 1
                yield Advanced(done)
                fallbacks += [event.name] if event.fallback else []
        result.add(turn.tensors)
    if fallbacks:
        yield Note(
            "{count} layers had to be rounded plainly: {names}.",
            {"count": len(fallbacks), "names": ", ".join(fallbacks)}, "warning",
        )  # fmt: skip


def _measure(skeleton: Skeleton, plan: Plan, result: Checkpoint, held: int, with_rtn: bool) -> Iterator[Event]:
    sequences = quality.held(skeleton.weights.folder, held)
    candidates: dict[str, quality.Reader] = {result.target.name: Skeleton(result.folder, skeleton.device)}
    if with_rtn:
        candidates["RTN"] = quality.Plain(skeleton, by_block(plan))
    yield from quality.compare(skeleton, candidates, sequences)


def by_block(plan: Plan) -> dict[int, dict[str, Planned]]:
    """The linears to quantize, by block and role."""
    blocks: dict[int, dict[str, Planned]] = {}
    for planned in plan.quantized:
        blocks.setdefault(planned.linear.block, {})[planned.linear.role] = planned
    return blocks


def _sequences(skeleton: Skeleton, recipe: Recipe) -> Sequences:
    own = recipe.calibration_file
    texts = calibration.documents(Path(own)) if own else calibration.own_text()
    tokenizer = calibration.tokenizer_of(skeleton.weights.folder)
    length = min(recipe.length, getattr(skeleton.config, "max_position_embeddings", recipe.length))
    return calibration.sequences(texts, tokenizer, length, recipe.samples * recipe.length, recipe.seed)


def _tell(sequences: Sequences, recipe: Recipe) -> Iterator[Event]:
    used = {
        "samples": len(sequences.pieces), "tokens": sequences.tokens,
        "asked_samples": recipe.samples, "asked_length": recipe.length,
    }  # fmt: skip
    yield Note("Calibration: {samples} samples, {tokens} tokens; you asked for {asked_samples} × {asked_length}.", used)
    if sequences.tokens < FEW_TOKENS:
        yield Note(
            "{tokens} calibration tokens are few; with at least {enough} the result is more reliable.",
            {"tokens": sequences.tokens, "enough": FEW_TOKENS}, "warning",
        )  # fmt: skip


def _shared_heads(plan: Plan) -> Note | None:
    model = plan.model
    scaled = [planned for planned in plan.quantized if planned.linear.role == "o" and "awq" in planned.choice.method]
    if not scaled or not model.heads or not model.kv_heads or model.heads == model.kv_heads:
        return None
    return Note(
        "o_proj: AWQ scales shared over {repeat} query heads, {layers} layers.",
        {"repeat": model.heads // model.kv_heads, "layers": len(scaled)},
    )


def _refusal(conflict: Conflict) -> WorkbenchError:
    hint = conflict.hint
    values = (dict(hint.values) if hint else {}) | dict(conflict.sentence.values)
    # A sentence inside a sentence is put into words here: events carry plain values.
    values = {name: value if isinstance(value, int | float) else str(value) for name, value in values.items()}
    return WorkbenchError(conflict.sentence.template, hint.template if hint else "", **values)


def _stored_dtype(skeleton: Skeleton, plan: Plan) -> torch.dtype:
    """The dtype that scales and folded norms are kept in: that of the weights."""
    first = plan.quantized[0].linear.name if plan.quantized else None
    return skeleton.weights.read(f"{first}.weight").dtype if first else torch.bfloat16
