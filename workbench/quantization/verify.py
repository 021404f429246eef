"""The written folder is opened again and compared with the plan before it gets its name."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from compressed_tensors.quantization import QuantizationConfig

from workbench.errors import WorkbenchError
from workbench.plan import Plan
from workbench.quantization.packing import scheme_of
from workbench.quantization.weights import Weights

REPAIR = "Please report this with the job's log; nothing was kept."


def check(folder: Path, plan: Plan, expected: Iterable[str]) -> None:
    """Every expected tensor is there and no other, packed where the plan packs, finite, with scales above zero."""
    weights = Weights(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if plan.quantized:
        QuantizationConfig.model_validate(config["quantization_config"])
    if strange := set(expected) ^ set(weights):
        raise WorkbenchError("The written model is wrong: {name} is missing or unplanned.", REPAIR, name=min(strange))
    for planned in plan.quantized:
        name = planned.linear.name
        if f"{name}.weight_packed" not in weights or f"{name}.weight" in weights:
            raise WorkbenchError("The written model is wrong: {name} should be packed and is not.", REPAIR, name=name)
        shape = [planned.linear.out_features, planned.linear.in_features]
        if weights.read(f"{name}.weight_shape").tolist() != shape:
            raise WorkbenchError("The written model is wrong: {name} has another shape.", REPAIR, name=name)
        scale = weights.read(f"{name}.weight_scale")
        groups = 1 if planned.choice.group_size < 0 else shape[1] // planned.choice.group_size
        if list(scale.shape) != [shape[0], groups] or not bool((scale > 0).all() and torch.isfinite(scale).all()):
            raise WorkbenchError("The written model is wrong: {name} has unusable scales.", REPAIR, name=name)
        symmetric = scheme_of(planned.choice, []).weights.symmetric
        if symmetric == (f"{name}.weight_zero_point" in weights):
            raise WorkbenchError("The written model is wrong: {name} should be packed and is not.", REPAIR, name=name)
    for name in weights:
        tensor = weights.read(name)
        if tensor.is_floating_point() and (bad := int((~torch.isfinite(tensor)).sum())):
            raise WorkbenchError(
                "The written model is wrong: {name} holds {count} values that are no numbers.",
                REPAIR, name=name, count=bad,
            )  # fmt: skip
