"""How the weights of a checkpoint are quantized, whoever made it."""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench import json_file
from workbench.catalog import headers, schemes, unlabelled
from workbench.catalog.headers import Tensor
from workbench.catalog.schemes import Scheme
from workbench.errors import WorkbenchError
from workbench.words import Sentence

METHODS = {
    "awq": "AWQ", "gptq": "GPTQ", "compressed-tensors": "compressed-tensors", "fp8": "FP8", "gguf": "GGUF",
    "bitsandbytes": "bitsandbytes", "modelopt": "ModelOpt", "modelopt_fp4": "ModelOpt", "mxfp4": "MXFP4",
    "auto-round": "AutoRound", "torchao": "torchao", "quark": "Quark", "hqq": "HQQ", "fbgemm_fp8": "FBGEMM FP8",
}  # fmt: skip
# vLLM computes these in float32 as well; for every other method it insists on a 16-bit type.
_ANY_TYPE = ("compressed-tensors", "torchao", "bitsandbytes", "gguf")
# Older tools wrote a file of their own instead of a part of config.json.
OWN_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
_MODELOPT_FILE = "hf_quant_config.json"  # this one vLLM finds by itself

CONFIG = "config.json"
WORD = 32  # bits

# What lies beside packed weights and is no weight itself.
SIDE = re.compile(
    r"\.(?:weight_scale|weight_zero_point|weight_shape|weight_g_idx|qzeros|scales|g_idx|weight_scale_inv|SCB"
    r"|input_scale|weight_global_scale|input_global_scale|weight_format"
    r"|weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+))$"
)


@dataclass(frozen=True, slots=True)
class Quantized:
    """How the weights are stored. None where the layers differ or the file does not say.

    `group_sizes` holds every size in use; -1 is one group per output row. `schemes` has one entry for each way in
    which layers are stored, `kept` the names or patterns of what is said to stay plain. `source` is the file that says
    so; empty where only the looks of the tensors tell. `gaps`: words of 32 bits hold as many whole values as fit, so
    that bits are left over at 3 bits, as compressed-tensors packs up to 0.17; from 0.19 on values run on into the
    next word.
    """

    method: str
    bits: int | None
    group_size: int | None
    symmetric: bool | None
    format: str = ""
    group_sizes: tuple[int, ...] = ()
    schemes: tuple[Scheme, ...] = ()
    kept: tuple[str, ...] = ()
    source: str = CONFIG
    gaps: bool = False

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

    @property
    def description(self) -> Sentence:
        """All of it: the method, each scheme with its layers, and what is kept."""
        method = METHODS.get(self.method, self.method)
        if self.format and self.format.lower() not in (method.lower(), self.method):
            method = f"{method} ({self.format})"
        told = Sentence("{method}", {"method": method})
        if len(self.schemes) == 1:
            told = Sentence("{method}: {scheme}", {"method": method, "scheme": self.schemes[0].sentence})
        elif self.schemes:
            told = Sentence("{method}, layers differ: {schemes}", {"method": method, "schemes": _each(self.schemes)})
        if self.kept:
            shown = ", ".join(self.kept[:3]) + (", …" if len(self.kept) > 3 else "")
            return Sentence("{told}. Kept plain: {kept}.", {"told": told, "kept": shown})
        return Sentence("{told}.", {"told": told})

    @property
    def half_only(self) -> bool:
        """Whether vLLM computes it in float16 and bfloat16 only."""
        return self.method not in _ANY_TYPE


def read(config: dict[str, Any]) -> Quantized | None:
    """The `quantization_config` (or `compression_config`) of a model's configuration, if it has one."""
    stored = config.get("quantization_config") or config.get("compression_config")
    return _of(*schemes.read(stored)) if isinstance(stored, dict) and stored else None


def find(folder: Path, tensors: Iterable[Tensor], *configs: dict[str, Any]) -> Quantized | None:
    """What the configurations say, else a file that the tool itself wrote, else what the tensors look like."""
    for config in configs:
        if found := read(config):
            return replace(found, gaps=_gaps(folder, tensors, found))
    for name, method in (*OWN_FILES.items(), (_MODELOPT_FILE, "modelopt")):
        try:
            stored = json_file.read(folder / name)
        except (OSError, ValueError):
            continue
        if isinstance(stored, dict) and stored:
            return _of(*schemes.read({"quant_method": method} | stored), source=name)
    guessed = unlabelled.guess(tuple(tensors))
    return _of(*guessed, source="") if guessed else None


def of_folder(folder: Path) -> Quantized | None:
    """The same from the configuration files, where they can be read: this is all that an engine looks at first."""
    try:
        config = json_file.read(folder / CONFIG)
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    found = find(folder, (), config, inner if isinstance(inner, dict) else {})
    if found and _uneven(found):
        try:
            stored = tuple(headers.read(file) for file in sorted(folder.glob("*.safetensors")))
        except WorkbenchError:
            return found
        tensors = tuple(tensor for file in stored for tensor in file)
        return replace(found, gaps=_gaps(folder, tensors, found))
    return found


def _uneven(found: Quantized) -> bool:
    """Whether some packed width does not divide a word."""
    widths = [scheme.bits for scheme in found.schemes if scheme.bits]
    return found.method == "compressed-tensors" and any(WORD % bits for bits in widths)


def _gaps(folder: Path, tensors: Iterable[Tensor], found: Quantized) -> bool:
    """Whether a packed layer takes a number of words that no width in use comes to without gaps."""
    if not _uneven(found):
        return False
    tensors, suffix = tuple(tensors), ".weight_packed"
    inputs = {name: columns for name, (_, columns) in shapes(folder, tensors).items()}
    for tensor in tensors:
        columns = inputs.get(tensor.name.removesuffix(suffix)) if tensor.name.endswith(suffix) else None
        if columns and tensor.shape[-1] not in {-(-columns * (each.bits or 0) // WORD) for each in found.schemes}:
            return True
    return False


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


def _of(method: str, found: tuple[Scheme, ...], form: str, kept: tuple[str, ...], source: str = CONFIG) -> Quantized:
    sizes = {scheme.group_size for scheme in found if scheme.group_size is not None}
    return Quantized(
        method,
        _common({scheme.bits for scheme in found}),
        _common({scheme.group_size for scheme in found}),
        _common({scheme.symmetric for scheme in found}),
        form,
        tuple(sorted(sizes)),
        found,
        kept,
        source,
    )


def _each(found: tuple[Scheme, ...]) -> Sentence:
    """The schemes with their layers, as one sentence that still follows the language."""
    first, *rest = found
    told = first.sentence
    if first.targets:
        told = Sentence("{scheme} ({layers})", {"scheme": told, "layers": first.layers})
    return Sentence("{first}; {rest}", {"first": told, "rest": _each(tuple(rest))}) if rest else told


def _common(values: set) -> Any:
    return next(iter(values)) if len(values) == 1 else None
