"""The headers of safetensors files: every tensor's name, type, shape and place, without its values.

The format: 8 bytes little-endian length, that many bytes of JSON, then the values
(https://github.com/huggingface/safetensors#format).
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import WorkbenchError

LONGEST = 100_000_000  # bytes of JSON that the format's own reader accepts
# Bytes of one value; types that are not here hold several values in a byte, or are not known.
WIDTHS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor. `offset` counts from the start of the file `file`; `bytes` is its stored size."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int = 0
    bytes: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def read(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one file, in the order they are stored. Raises WorkbenchError when the file is damaged."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= min(LONGEST, size - 8) else None
    except OSError as error:
        raise WorkbenchError(
            "{file} cannot be read: {reason}.", "Check the rights of the file.", file=path.name, reason=error.strerror
        ) from error
    if text is None:
        raise WorkbenchError(
            "{file} is not a whole safetensors file: its header does not fit in its {size} bytes.",
            "Download or copy the file again.", file=path.name, size=size,
        )  # fmt: skip
    try:
        tensors = _parse(json.loads(text), path.name, 8 + length)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WorkbenchError(
            "The header of {file} is damaged.", "Download or copy the file again.", file=path.name
        ) from error
    end = max((tensor.offset + tensor.bytes for tensor in tensors), default=8 + length)
    if end > size:
        raise WorkbenchError(
            "{file} is cut off: it should have {wanted} bytes and has {size}.",
            "Download or copy the file again.", file=path.name, wanted=end, size=size,
        )  # fmt: skip
    return tensors


def _parse(header: dict, file: str, start: int) -> tuple[Tensor, ...]:
    tensors = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        if not whole or end < begin or not isinstance(entry["dtype"], str):
            raise ValueError(name)
        name.encode()  # a half of a surrogate pair can be read from JSON, but never written
        tensors.append(Tensor(name, entry["dtype"], shape, file, start + begin, end - begin))
    tensors.sort(key=lambda tensor: tensor.offset)
    at = start
    for tensor in tensors:
        fits = tensor.bytes == tensor.elements * WIDTHS.get(tensor.dtype, 0) or tensor.dtype not in WIDTHS
        if not fits or (tensor.bytes and tensor.offset < at):  # values that belong to two tensors
            raise ValueError(tensor.name)
        at = tensor.offset + tensor.bytes
    return tuple(tensors)
