"""A packed checkpoint as it would stand in AutoAWQ's or GPTQ's format: is that possible, and how large would it be.

Judged from headers alone. Both formats name one scheme for the whole model, so every linear layer of the blocks must
be stored alike; the integers are then laid out anew and nothing is rounded again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.catalog import quantized
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.catalog.problem import SERVE
from workbench.catalog.schemes import WHOLE_ROW, Scheme
from workbench.errors import WorkbenchError

FORMATS = {"awq": "AWQ", "gptq": "GPTQ", "gptq_v2": "GPTQ v2"}
BITS = {"awq": (4,), "gptq": (4, 8), "gptq_v2": (4, 8)}
_WORD = 32  # bits
_PACKED = ".weight_packed"


@dataclass(frozen=True, slots=True)
class Stored:
    """One packed linear layer [out_features, in_features]."""

    name: str
    out_features: int
    in_features: int
    bits: int
    group_size: int
    symmetric: bool

    @property
    def scheme(self) -> Scheme:
        return Scheme(self.bits, self.group_size, self.symmetric)

    @property
    def groups(self) -> int:
        return 1 if self.group_size == WHOLE_ROW else self.in_features // self.group_size


@dataclass(frozen=True)
class Export:
    """What will be converted; all layers have the scheme of the first."""

    model: Model
    form: str
    layers: tuple[Stored, ...]

    @property
    def scheme(self) -> Scheme:
        return self.layers[0].scheme

    @property
    def predicted_bytes(self) -> int:
        """The size of the weights: the integers take what they took, zero points and the order of columns come on."""
        zeros = sum(layer.groups * layer.out_features * layer.bits // 8 for layer in self.layers)
        order = 0 if self.form == "awq" else sum(4 * layer.in_features for layer in self.layers)
        return self.model.weight_bytes + zeros + order


def plan(folder: Path, form: str) -> Export:
    """What the export of `folder` to `form` takes; a WorkbenchError says why there can be none."""
    if form not in FORMATS:
        raise WorkbenchError("There is no format {format}.", "Choose one of {known}.",
                             format=form, known=", ".join(FORMATS))  # fmt: skip
    model = inspect(folder)
    for problem in model.blocking(SERVE):
        hint = problem.hint
        values = problem.sentence.values | (hint.values if hint else {})
        raise WorkbenchError(problem.sentence.template, hint.template if hint else "", **values)
    layers = tuple(_layers(model))
    if not layers:
        raise WorkbenchError(
            "{name} holds no packed layers to export.", "Choose a model that was quantized here.", name=model.name
        )
    _check_alike(model, layers, form)
    for layer in layers:
        _check_layer(layer, form)
    return Export(model, form, layers)


def spec(chosen: Export, output: Path, replace: bool = False) -> dict[str, Any]:
    """What a job of the kind "export" is asked to do."""
    model = str(chosen.model.folder.resolve())
    return {"model": model, "output": str(output.resolve()), "format": chosen.form, "replace": replace}


def _layers(model: Model) -> Iterator[Stored]:
    tensors = {tensor.name: tensor for tensor in model.tensors}
    shapes = quantized.shapes(model.folder, model.tensors)
    for name, packed in tensors.items():
        if not name.endswith(_PACKED):
            continue
        module = name.removesuffix(_PACKED)
        scale, shape = tensors.get(f"{module}.weight_scale"), shapes.get(module)
        if scale is None or shape is None or len(scale.shape) != 2 or not packed.elements:
            raise WorkbenchError(
                "{layer} is packed in a way that is not known here.", "Quantize the original model here.", layer=module
            )
        if f"{module}.weight_g_idx" in tensors:
            raise WorkbenchError(
                "{layer} has its columns in activation order, which the other formats cannot carry for vLLM.",
                "Quantize the original model here.", layer=module,
            )  # fmt: skip
        rows, columns = shape
        groups = scale.shape[1]
        yield Stored(
            module, rows, columns, _WORD // round(columns / packed.shape[1]),
            columns // groups if groups > 1 else WHOLE_ROW, f"{module}.weight_zero_point" not in tensors,
        )  # fmt: skip


def _check_alike(model: Model, layers: tuple[Stored, ...], form: str) -> None:
    values = {"format": FORMATS[form]}
    packed = {layer.name for layer in layers}
    if plain := [linear.name for linear in model.linears if linear.name not in packed]:
        raise WorkbenchError(
            "{format} wants every linear layer of the blocks quantized; {count} {count:is|are} kept plain: {layers}.",
            "Quantize the model with one method, width and group for all layers.",
            **values, count=len(plain), layers=_roles(plain),
        )  # fmt: skip
    (usual, _), *others = Counter(layer.scheme for layer in layers).most_common()
    if others:
        odd = [layer for layer in layers if layer.scheme != usual]
        raise WorkbenchError(
            "{format} has one scheme for all layers. Most have {usual}; {count} {count:differs|differ} with "
            "{other}: {layers}.",
            "Quantize the model with one method, width and group for all layers.",
            **values, usual=str(usual.sentence), other=str(odd[0].scheme.sentence), count=len(odd),
            layers=_roles([layer.name for layer in odd]),
        )  # fmt: skip


def _check_layer(layer: Stored, form: str) -> None:
    if layer.bits not in BITS[form]:
        raise WorkbenchError(
            "{format} is exported with {known} bits; these layers have {bits}.",
            "Export them as gptq." if layer.bits in BITS["gptq"] else "Serve the compressed-tensors folder as it is.",
            format=FORMATS[form], known="/".join(map(str, BITS[form])), bits=layer.bits,
        )  # fmt: skip
    per_word = _WORD // layer.bits
    if layer.out_features % per_word or (form != "awq" and layer.in_features % per_word):
        raise WorkbenchError(
            "{format} packs {number} values together; {layer} is {out} × {columns}.",
            "Serve the compressed-tensors folder as it is.",
            format=FORMATS[form], number=per_word, layer=layer.name, out=layer.out_features, columns=layer.in_features,
        )  # fmt: skip
    if layer.group_size != WHOLE_ROW and layer.groups * layer.group_size != layer.in_features:
        raise WorkbenchError(
            "The groups of {layer} do not divide its {columns} inputs.",
            "Serve the compressed-tensors folder as it is.", layer=layer.name, columns=layer.in_features,
        )  # fmt: skip


def _roles(names: list[str]) -> str:
    """The last two parts of each name, as a block repeats them; single names where there are few."""
    shown = names if len(names) < 4 else list(dict.fromkeys(".".join(name.split(".")[-2:]) for name in names))
    return ", ".join(shown[:7]) + (", …" if len(shown) > 7 else "")
