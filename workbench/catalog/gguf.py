"""GGUF files, recognised by their first bytes and read up to where the values begin.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from workbench.catalog import problem
from workbench.catalog.model import Model
from workbench.catalog.quantized import Quantized
from workbench.errors import WorkbenchError

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def files(folder: Path) -> list[Path]:
    """The GGUF files of a folder, whatever they are called, biggest first."""
    found = [path for pattern in ("*.gguf", "*.bin") for path in folder.glob(pattern) if _magic(path)]
    return sorted(found, key=lambda path: -path.stat().st_size)


def _magic(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def inspect(folder: Path, found: list[Path]) -> Model:
    """The model that the biggest file describes; it can only be looked at."""
    values, tensors = read(found[0])
    family = str(values.get("general.architecture", ""))

    def number(name: str) -> int | None:
        value = values.get(f"{family}.{name}")
        return value if type(value) is int else None

    kinds = Counter()
    for _, kind, elements in tensors:
        kinds[kind] += elements
    # The output matrix often has more bits than the rest: the type of most weights names the file.
    main = kinds.most_common(1)[0][0] if kinds else ""
    heads, hidden = number("attention.head_count"), number("embedding_length")
    vocab = number("vocab_size") or values.get("tokenizer.ggml.tokens")
    end = values.get("tokenizer.ggml.eos_token_id")
    names = {name for name, _, _ in tensors}
    width = re.match(r"(?:I?Q|TQ|MXFP)(\d)", main)
    types = " + ".join(kind for kind, _ in kinds.most_common(4))
    return Model(
        folder=folder,
        name=folder.resolve().name,
        format="gguf",
        architecture=family,
        model_type=family,
        layers=number("block_count"),
        hidden=hidden,
        intermediate=number("feed_forward_length"),
        heads=heads,
        kv_heads=number("attention.head_count_kv") or heads,
        head_dim=number("attention.key_length") or (hidden // heads if hidden and heads else None),
        vocab=vocab,
        context=number("context_length"),
        dtype=main,
        parameters=sum(elements for _, _, elements in tensors),
        weight_bytes=sum(path.stat().st_size for path in found),
        tied="output.weight" not in names,
        attention_bias="blk.0.attn_q.bias" in names,
        has_template="tokenizer.chat_template" in values,
        eos_ids=(end,) if type(end) is int else (),
        rope=str(values.get(f"{family}.rope.scaling.type", "")) or None,
        rope_factor=values.get(f"{family}.rope.scaling.factor"),
        quantization=Quantized("gguf", int(width[1]) if width else None, None, None, types, source=found[0].name),
        tensors=(),
        linears=(),
        problems=(problem.gguf_source(),),
    )


def read(path: Path) -> tuple[dict[str, Any], list[tuple[str, str, int]]]:
    """The metadata, an array given by its length alone, and (name, type, elements) of each tensor."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).header()
    except (OSError, ValueError, struct.error, KeyError, IndexError, OverflowError) as error:
        raise WorkbenchError(
            "{file} is a damaged GGUF file.", "Download or copy the file again.", file=path.name
        ) from error


class _Reader:
    def __init__(self, data: mmap.mmap):
        self._data = data
        self._at = 4

    def header(self) -> tuple[dict[str, Any], list[tuple[str, str, int]]]:
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(version)
        tensors, pairs = self._number("Q"), self._number("Q")
        values = {}
        for _ in range(pairs):
            key = self._string()
            values[key] = self._value(self._number("I"))
        found = []
        for _ in range(tensors):
            name = self._string()
            shape = [self._number("Q") for _ in range(self._number("I"))]
            kind = self._number("I")
            self._number("Q")
            found.append((name, _TYPES.get(kind, str(kind)), math.prod(shape)))
        return values, found

    def _number(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        value = struct.unpack_from("<" + form, self._data, self._at)[0]
        self._at += size
        return value

    def _string(self) -> str:
        length = self._number("Q")
        if length > len(self._data) - self._at:
            raise ValueError(length)
        text = self._data[self._at : self._at + length]
        self._at += length
        return text.decode("utf-8", errors="replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_NUMBERS[kind])
        inner, count = self._number("I"), self._number("Q")
        if inner == _STRING:
            unpack, data, at = struct.Struct("<Q").unpack_from, self._data, self._at
            for _ in range(count):  # a vocabulary: only where it ends matters
                at += 8 + unpack(data, at)[0]
            self._at = at
        elif inner == _ARRAY:
            for _ in range(count):
                self._value(inner)
        else:
            self._at += count * struct.calcsize("<" + _NUMBERS[inner])
        return count
