"""The export job: a uniform packed checkpoint laid out anew in AutoAWQ's or GPTQ's format, without rounding again."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from workbench import __version__, json_file
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Finished, Note, Stage
from workbench.export import Export, Stored, plan
from workbench.quantization import layouts, place
from workbench.quantization.checkpoint import Checkpoint, check_space
from workbench.quantization.layouts import Integers
from workbench.quantization.packing import PARTS
from workbench.quantization.weights import Weights


class Exported(Checkpoint):
    """A folder in the making whose config.json names another format."""

    def __init__(self, source: Path, target: Path, named: dict[str, Any]):
        super().__init__(source, target, None)
        self.named = named

    def _write_config(self) -> None:
        config = json_file.read(self.source / "config.json")
        config.pop("compression_config", None)
        config["quantization_config"] = self.named
        _write(self.folder / "config.json", config)
        if self.named["quant_method"] == "gptq":  # where GPTQ's own tools look
            _write(self.folder / "quantize_config.json", self.named)


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """Export and publish. spec: model, output (folders), format (awq, gptq, gptq_v2) and optionally replace.

    Nothing lies under the output's name before everything is written and read back.
    """
    source, target, form = Path(spec["model"]), Path(spec["output"]), spec["format"]
    chosen = plan(source, form)
    place.purge(target)
    place.check_name(target, bool(spec.get("replace")))
    check_space(target, chosen.predicted_bytes)
    weights = Weights(source)
    result = Exported(source, target, named(chosen))
    try:
        result.open()
        yield from _convert(chosen, weights, result)
        result.finish()
        yield from _read_back(chosen, weights, Weights(result.folder))
        size = result.publish(bool(spec.get("replace")))
    finally:
        result.discard()
    if form != "awq" and not chosen.scheme.symmetric:
        yield Note("vLLM 0.32 loads symmetric GPTQ weights only; for vLLM export as AWQ.", level="warning")
    yield Finished(str(target), size)


def named(chosen: Export) -> dict[str, Any]:
    """The `quantization_config`. Columns lie in their own order, so an activation order is never asked for."""
    scheme = chosen.scheme
    common = {"bits": scheme.bits, "group_size": scheme.group_size}
    if chosen.form == "awq":
        # Symmetric layers bring a zero point of 8 as well: the readers of this format always take one off.
        return {"quant_method": "awq", **common, "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
    return {
        "quant_method": "gptq",
        **common,
        "sym": scheme.symmetric,
        "desc_act": False,
        "lm_head": False,
        "checkpoint_format": chosen.form,
        "meta": {"quantizer": [f"lathe:{__version__}"]},
    }


def _convert(chosen: Export, weights: Weights, result: Exported) -> Iterator[Event]:
    layers = {layer.name: layer for layer in chosen.layers}
    yield Stage("Converting the layers", len(layers))
    done = 0
    for name in weights:
        module, _, part = name.rpartition(".")
        if module not in layers or part not in PARTS:
            result.add({name: weights.read(name)})
        elif part == "weight_packed":
            converted = _write_layer(_integers(weights, layers[module]), chosen.form, module)
            result.add({f"{module}.{leaf}": tensor for leaf, tensor in converted.items()})
            done += 1
            yield Advanced(done)


def _write_layer(weight: Integers, form: str, module: str) -> dict[str, Tensor]:
    if form == "awq":
        return layouts.to_awq(weight)
    if form == "gptq" and not bool(weight.zeros.all()):
        raise WorkbenchError(
            "{layer} has zero points of 0, for which the first GPTQ format has no place.",
            "Export as gptq_v2, or as AWQ.", layer=module,
        )  # fmt: skip
    return layouts.to_gptq(weight, less_one=form == "gptq")


def _read_back(chosen: Export, weights: Weights, written: Weights) -> Iterator[Event]:
    """Every layer on disk stands for the same integers, zeros and scales as in the source, to the last bit."""
    yield Stage("Reading the result back", len(chosen.layers))
    for done, layer in enumerate(chosen.layers, 1):
        tensors = _parts(written, layer.name, layouts.PARTS)
        if chosen.form == "awq":
            found = layouts.from_awq(tensors, layer.bits)
        else:
            found = layouts.from_gptq(tensors, layer.bits, less_one=chosen.form == "gptq")
        if not found.same(_integers(weights, layer)):
            raise WorkbenchError(
                "The written model is wrong: {name} does not read back.",
                "Please report this with the job's log; nothing was kept.", name=layer.name,
            )  # fmt: skip
        yield Advanced(done)


def _integers(weights: Weights, layer: Stored) -> Integers:
    return layouts.from_packed(_parts(weights, layer.name, PARTS), layer.bits)


def _parts(weights: Weights, module: str, leaves: tuple[str, ...]) -> dict[str, Tensor]:
    return {leaf: weights.read(f"{module}.{leaf}") for leaf in leaves if f"{module}.{leaf}" in weights}


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
