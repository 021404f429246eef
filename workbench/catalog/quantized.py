"""What a checkpoint's own configuration says about how it was quantized."""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.catalog.headers import Tensor
from workbench.words import Sentence

METHODS = {
    "awq": "AWQ", "gptq": "GPTQ", "compressed-tensors": "compressed-tensors", "fp8": "FP8", "gguf": "GGUF",
    "bitsandbytes": "bitsandbytes",
}  # fmt: skip


# What lies beside packed weights and is no weight itself.
SIDE = re.compile(
    r"\.(?:weight_scale|weight_zero_point|weight_shape|weight_g_idx|qzeros|scales|g_idx|weight_scale_inv)$"
)


@dataclass(frozen=True, slots=True)
class Quantized:
    """How the weights are stored. None where the layers differ or the file does not say.

    `group_sizes` holds every size in use; -1 is one group per output row.
    """

    method: str
    bits: int | None
    group_size: int | None
    symmetric: bool | None
    format: str = ""
    group_sizes: tuple[int, ...] = ()

    @property
    def sentence(self) -> Sentence:
        """Such as "4-bit AWQ, group 32"."""
        method = METHODS.get(self.method, self.method)
        if self.bits is None:
            return Sentence("{method}", {"method": method})
        sizes = "/".join(map(str, self.group_sizes))
        if not sizes or self.group_sizes == (-1,):
            return Sentence("{bits}-bit {method}", {"bits": self.bits, "method": method})
        return Sentence("{bits}-bit {method}, group {size}", {"bits": self.bits, "method": method, "size": sizes})


def read(config: dict[str, Any]) -> Quantized | None:
    """The `quantization_config` (or `compression_config`) of a model's configuration, if it has one."""
    stored = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(stored, dict) or not stored:
        return None
    method = str(stored.get("quant_method") or "compressed-tensors")
    if method == "compressed-tensors":
        return _compressed(stored)
    bits = _whole(stored.get("bits") or stored.get("w_bit"))
    if method == "bitsandbytes":
        bits = 4 if stored.get("load_in_4bit") else 8
    if method == "fp8":
        bits = 8
    size = _whole(stored.get("group_size", stored.get("q_group_size")))
    symmetric = stored.get("sym")
    if symmetric is None and "zero_point" in stored:
        symmetric = not stored["zero_point"]
    form = str(stored.get("version") or stored.get("checkpoint_format") or "")
    return Quantized(method, bits, size, symmetric, form, () if size is None else (size,))


def shapes(folder: Path, tensors: Iterable[Tensor]) -> dict[str, tuple[int, int]]:
    """Module name → [out, in] of weights packed by compressed-tensors, which stores 16 bytes for that beside each."""
    found = {}
    stored = sorted((tensor for tensor in tensors if tensor.name.endswith(".weight_shape")), key=lambda part: part.file)
    file, name = None, ""
    try:
        for tensor in stored:
            if tensor.bytes != 16:
                continue
            if tensor.file != name:
                if file:
                    file.close()
                file, name = (folder / tensor.file).open("rb"), tensor.file
            file.seek(tensor.offset)
            out_features, in_features = struct.unpack("<2q", file.read(16))
            if out_features > 0 and in_features > 0:
                found[tensor.name.removesuffix(".weight_shape")] = (out_features, in_features)
    finally:
        if file:
            file.close()
    return found


def _compressed(stored: dict[str, Any]) -> Quantized:
    groups = stored.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict) and isinstance(group.get("weights"), dict)
    ]
    bits = {_whole(scheme.get("num_bits")) for scheme in weights}
    sizes = {_whole(scheme.get("group_size")) or -1 for scheme in weights}
    symmetric = {scheme.get("symmetric") is not False for scheme in weights}
    return Quantized(
        "compressed-tensors", _common(bits), _common(sizes), _common(symmetric),
        str(stored.get("format") or ""), tuple(sorted(sizes)),
    )  # fmt: skip


def _common(values: set) -> Any:
    return next(iter(values)) if len(values) == 1 else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
