"""Quantized weights that no configuration speaks of, told by the names, types and shapes of their tensors."""

from collections.abc import Sequence

from workbench.catalog.headers import Tensor
from workbench.catalog.schemes import FLOAT, WHOLE_ROW, Scheme

_WORD = 32  # bits
_FLOAT8 = ("F8_E4M3", "F8_E5M2")

Guess = tuple[str, tuple[Scheme, ...], str, tuple[str, ...]]


def guess(tensors: Sequence[Tensor]) -> Guess | None:
    """Method, schemes, format and what is kept, as `schemes.read` gives them; None for plain weights."""
    by_name = {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        module, _, part = tensor.name.rpartition(".")
        if part == "weight_packed":
            return _found("compressed-tensors", _packed(module, by_name))
        if part == "qweight":
            return _words(module, tensor, by_name)
        if part == "SCB":
            return _found("bitsandbytes", Scheme(8, WHOLE_ROW, True, activations=8))
        if part.startswith("bitsandbytes__"):
            return _found("bitsandbytes", Scheme(4, None, None, FLOAT, format=part.removeprefix("bitsandbytes__")))
        if part == "weight" and tensor.dtype in _FLOAT8 and len(tensor.shape) == 2:
            return _found("fp8", _float8(module, tensor, by_name))
    return None


def _found(method: str, scheme: Scheme) -> Guess:
    return method, (scheme,), scheme.format, ()


def _packed(module: str, tensors: dict[str, Tensor]) -> Scheme:
    symmetric = f"{module}.weight_zero_point" not in tensors
    return Scheme(None, None, symmetric)  # the width stands in values, not in the header


def _words(module: str, weight: Tensor, tensors: dict[str, Tensor]) -> Guess | None:
    """AWQ packs along the outputs, GPTQ along the inputs: the scales [groups, out] tell which."""
    scales, order = tensors.get(f"{module}.scales"), tensors.get(f"{module}.g_idx")
    if scales is None or len(scales.shape) != 2 or len(weight.shape) != 2 or not all((*weight.shape, *scales.shape)):
        return None
    groups, outputs = scales.shape
    if weight.shape[1] == outputs:
        inputs = order.elements if order else None
        bits = weight.shape[0] * _WORD // inputs if inputs else None
        size = None if inputs is None else WHOLE_ROW if groups == 1 else inputs // groups
        return _found("gptq", Scheme(bits, size))
    inputs = weight.shape[0]
    bits = weight.shape[1] * _WORD // outputs
    size = WHOLE_ROW if groups == 1 else inputs // groups
    return _found("awq", Scheme(bits, size, f"{module}.qzeros" not in tensors))


def _float8(module: str, weight: Tensor, tensors: dict[str, Tensor]) -> Scheme:
    scale = tensors.get(f"{module}.weight_scale_inv") or tensors.get(f"{module}.weight_scale")
    if scale is None or scale.elements <= 1 or len(scale.shape) != 2:
        return Scheme(8, None, True, FLOAT)
    if scale.shape[1] == 1:
        return Scheme(8, WHOLE_ROW, True, FLOAT)
    tile = [-(-length // parts) for length, parts in zip(weight.shape, scale.shape, strict=True)]
    return Scheme(8, None, True, FLOAT, block="×".join(map(str, tile)))
