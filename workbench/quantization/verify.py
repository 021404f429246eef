"""The written folder is opened again and compared with the plan before it gets its name."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from compressed_tensors.quantization import QuantizationConfig

from workbench import json_file
from workbench.errors import WorkbenchError
from workbench.plan import Plan, Planned
from workbench.quantization.stats import is_finite
from workbench.quantization.weights import Weights
from workbench.words import Sentence


def check(folder: Path, plan: Plan, expected: Iterable[str]) -> None:
    """Every expected tensor is there and no other, packed where the plan packs, finite, with no scale of zero."""
    if plan.quantized:
        config = json_file.read(folder / "config.json")
        QuantizationConfig.model_validate(config["quantization_config"])
    for problem in _problems(Weights(folder), plan, set(expected)):
        raise WorkbenchError(
            problem.template, "Please report this with the job's log; nothing was kept.", **problem.values
        )


def _problems(weights: Weights, plan: Plan, expected: set[str]) -> Iterator[Sentence]:
    for name in sorted(expected ^ set(weights)):
        yield Sentence("The written model is wrong: {name} is missing or not planned.", {"name": name})
    for planned in plan.quantized:
        yield from _packed(weights, planned)
    for name, tensor in weights.each(weights):
        if tensor.is_floating_point() and not is_finite(tensor):
            bad = int((~torch.isfinite(tensor)).sum())
            yield Sentence(
                "The written model is wrong: {name} holds {count} {count:value that is|values that are} not finite.",
                {"name": name, "count": bad},
            )


def _packed(weights: Weights, planned: Planned) -> Iterator[Sentence]:
    name, choice = planned.linear.name, planned.choice
    shape = [planned.linear.out_features, planned.linear.in_features]
    groups = 1 if choice.group_size < 0 else shape[1] // choice.group_size
    parts = {part for part in ("weight", "weight_packed", "weight_zero_point") if f"{name}.{part}" in weights}
    if parts != {"weight_packed"} | (set() if choice.symmetric else {"weight_zero_point"}):
        yield Sentence("The written model is wrong: {name} is not packed as planned.", {"name": name})
        return
    scale = weights.read(f"{name}.weight_scale")
    stored = weights.read(f"{name}.weight_shape").tolist()
    packed = weights.read(f"{name}.weight_packed").shape[1]
    if stored != shape or list(scale.shape) != [shape[0], groups] or packed != -(-shape[1] * choice.bits // 32):
        yield Sentence("The written model is wrong: {name} has another shape than planned.", {"name": name})
    if not bool((scale != 0).all()):
        yield Sentence("The written model is wrong: {name} has scales of zero.", {"name": name})
