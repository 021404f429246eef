"""The quantization job from the model's folder to a verified checkpoint, as one generator of events."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from workbench import plan as plans
from workbench import quant_report
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Finished, Note, Stage
from workbench.measure import quality
from workbench.plan import Conflict, Plan
from workbench.quant_events import Checked, QualityMeasured
from workbench.quantization import gate, place, side_files
from workbench.quantization.blocks import Skeleton, device_of
from workbench.quantization.checkpoint import Checkpoint, check_space
from workbench.quantization.course import Course, by_block
from workbench.quantization.stats import is_finite, largest
from workbench.words import Sentence

LARGEST = 1e15  # of a weight; sums of squares stay far inside float32


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """Quantize and publish. spec: model, output (folders), recipe (plain values); optionally threads, device
    ("cpu", "cuda"), held_tokens (0: neither measure nor try answers), measure_rtn (also plain rounding at the same
    plan), replace, and reuse (finished blocks are kept in the home folder, and taken over from earlier runs).

    Nothing lies under the output's name before the result is written, verified and measured. With `replace` an
    earlier result there stays until then; without, it is refused. However this ends, nothing half-written stays.
    A result that fails its checks is kept beside, marked. `folder` is the job's: amendments are read from it, and
    the report is written into it.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    told: list[Event] = []
    try:
        for event in _run(spec, folder, told):
            told.append(event)
            yield event
    except WorkbenchError as error:
        with suppress(OSError, WorkbenchError):  # a full disk must not hide the reason itself
            quant_report.write(folder, quant_report.content(folder, spec, told, error))
        raise


def _run(spec: Mapping[str, Any], folder: Path, told: list[Event]) -> Iterator[Event]:
    source, target = Path(spec["model"]), Path(spec["output"])
    recipe = recipes.from_dict(spec["recipe"])
    plan = plans.make(catalog.inspect(source), recipe, target)
    for conflict in plan.conflicts:
        # These two are judged below: an earlier result may be replaced, and what a killed run left gives space back.
        if conflict.code not in ("output_exists", "no_space"):
            raise _refusal(conflict)
    place.purge(target)
    place.check_name(target, bool(spec.get("replace")))
    check_space(target, plan.predicted_bytes)
    side_files.require_readable(source)
    skeleton = Skeleton(source, device_of(spec))
    skeleton.require(planned.linear.name for planned in plan.quantized)
    result = Checkpoint(source, target, plan)
    try:
        result.open()
        yield from side_files.notes(source)
        yield from _scan(skeleton)
        skeleton.prove()
        course = Course(skeleton, plan, folder, result, bool(spec.get("reuse")))
        yield from course.run()
        plan = result.plan = course.plan
        yield Stage("Writing and verifying the result")
        result.finish()
        yield from gate.structure(result, plan)
        yield from gate.sides(source, result, plan)
        if held := int(spec.get("held_tokens", quality.HELD_TOKENS)):
            yield from _measure(skeleton, plan, result, held, bool(spec.get("measure_rtn")))
            yield from gate.sentences(skeleton, result, plan)
        wrong = next((event for event in told if isinstance(event, Checked) and not event.passed), None)
        report = quant_report.content(folder, spec, told, plan=plan)
        result.describe(report)
        if wrong:
            raise _failed(result, wrong)
        size = result.publish(bool(spec.get("replace")))
        try:
            quant_report.write(folder, report)
        except OSError as error:
            reason = error.strerror or str(error)
            yield Note("The report was not written to {folder}: {reason}.", {"folder": str(folder), "reason": reason})
    finally:
        result.discard()
    yield Finished(str(target), size)


def _failed(result: Checkpoint, wrong: Checked) -> WorkbenchError:
    check = Sentence(wrong.name)
    detail = Sentence(wrong.detail, wrong.values)
    kept = result.set_aside(check)
    return WorkbenchError(
        "The result failed a check: {check} ({detail}).",
        "It is kept in {folder} for a look and not offered for chat; try more bits or smaller groups.",
        check=check, detail=detail, folder=str(kept),
    )  # fmt: skip


def _scan(skeleton: Skeleton) -> Iterator[Event]:
    """A value that is no number would spoil the whole run, so it is looked for first."""
    weights = skeleton.weights
    names = list(weights)
    yield Stage("Checking the weights", len(names))
    for done, (name, tensor) in enumerate(weights.each(names), 1):
        if tensor.is_floating_point() and not is_finite(tensor):
            raise WorkbenchError(
                "The tensor {name} holds {count} {count:value that is|values that are} not finite.",
                "The model is damaged: fetch it again.",
                name=name, count=int((~torch.isfinite(tensor)).sum()),
            )  # fmt: skip
        # Types of 8 bits reach no such values.
        if tensor.is_floating_point() and tensor.element_size() > 1 and (most := largest(tensor)) > LARGEST:
            raise WorkbenchError(
                "The tensor {name} holds values up to {value}: their squares cannot be computed with.",
                "The model is damaged: fetch it again.",
                name=name, value=f"{most:.3g}",
            )  # fmt: skip
        if done % 50 == 0 or done == len(names):
            yield Advanced(done)


def _measure(skeleton: Skeleton, plan: Plan, result: Checkpoint, held: int, with_rtn: bool) -> Iterator[Event]:
    sequences = quality.held(skeleton.weights.folder, held)
    candidates: dict[str, quality.Reader] = {result.target.name: Skeleton(result.folder, skeleton.device)}
    if with_rtn:
        # The result has the first right to the name.
        candidates["RTN" if result.target.name != "RTN" else "plain RTN"] = quality.Plain(skeleton, by_block(plan))
    for event in quality.compare(skeleton, candidates, sequences):
        yield event
        if isinstance(event, QualityMeasured) and event.name == result.target.name:
            yield gate.quality(event)


def _refusal(conflict: Conflict) -> WorkbenchError:
    hint = conflict.hint
    values = (dict(hint.values) if hint else {}) | dict(conflict.sentence.values)
    # A sentence inside a sentence is put into words here: events carry plain values.
    values = {name: value if isinstance(value, int | float) else str(value) for name, value in values.items()}
    return WorkbenchError(conflict.sentence.template, hint.template if hint else "", **values)
