"""The dialects in which checkpoints say how they were quantized, read into one form.

Met so far: compressed-tensors (also in its first `compression_config` form, with one format or one for each group, with
quantized activations and floats), AutoAWQ and AutoGPTQ with their descendants, GPTQModel's rules for single modules,
FP8 as DeepSeek and others write it, bitsandbytes, ModelOpt and MXFP4.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.words import Sentence

INT, FLOAT = "int", "float"
WHOLE_ROW = -1


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way in which layers are stored; None where the file does not say.

    `group_size` -1 is one scale for each output row; `block` is the tile that shares a scale, as in "128×128".
    `activations` is the width of the inputs where those are quantized as well. `order` is how columns were sorted:
    "" not at all or already undone, "group" where a reader has to look up each column's group.
    """

    bits: int | None
    group_size: int | None = None
    symmetric: bool | None = None
    number: str = INT
    activations: int | None = None
    order: str = ""
    block: str = ""
    targets: tuple[str, ...] = ()
    format: str = ""

    @property
    def layers(self) -> str:
        """The names or patterns it holds for, the first few."""
        return ", ".join(map(_readable, self.targets[:3])) + (", …" if len(self.targets) > 3 else "")

    @property
    def sentence(self) -> Sentence:
        """Such as "4-bit integers, group 128, with zero points"."""
        values: dict[str, Any] = {"bits": self.bits, "size": self.group_size, "block": self.block}
        told = Sentence("unknown width")
        if self.bits is not None:
            told = Sentence("{bits}-bit floats" if self.number == FLOAT else "{bits}-bit integers", values)
        if self.block:
            told = _and(told, Sentence("one scale for each {block} block", values))
        elif self.group_size == WHOLE_ROW:
            told = _and(told, Sentence("one scale for each row"))
        elif self.group_size:
            told = _and(told, Sentence("group {size}", values))
        if self.symmetric is not None and self.number == INT:
            told = _and(told, Sentence("symmetric") if self.symmetric else Sentence("with zero points"))
        if self.order:
            told = _and(told, Sentence("with activation order"))
        if self.activations:
            told = _and(told, Sentence("activations in {bits} bit", {"bits": self.activations}))
        return told


def read(stored: dict[str, Any]) -> tuple[str, tuple[Scheme, ...], str, tuple[str, ...]]:
    """A quantization configuration as method, schemes, the name of its format, and what is kept plain."""
    inner = stored.get("quantization_config")
    if isinstance(inner, dict):  # the first form of compressed-tensors, with the sparsity beside it
        stored = inner
    method = str(stored.get("quant_method") or "").lower().replace("_", "-").removeprefix("intel/")
    if "modelopt" in method or _producer(stored) == "modelopt":
        return _modelopt(stored)
    if method in ("", "sparseml", "compressed-tensors"):
        return _compressed(stored)
    if method.startswith("fbgemm"):
        method = "fbgemm_fp8"
    form = str(stored.get("version") or stored.get("checkpoint_format") or stored.get("packing_format") or "")
    found = tuple(_plain(method, stored))
    return method, found, form or found[0].format, kept(stored)


def kept(stored: dict[str, Any]) -> tuple[str, ...]:
    """What the file says stays as it was, under whichever name."""
    found: list[str] = []
    for key in ("ignore", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "exclude_modules"):
        entries = stored.get(key)
        if isinstance(entries, list):
            found += [entry for entry in entries if isinstance(entry, str)]
    rules = stored.get("dynamic")
    if isinstance(rules, dict):
        found += [rule.removeprefix("-:") for rule in rules if isinstance(rule, str) and rule.startswith("-:")]
    return tuple(dict.fromkeys(found))


def whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _plain(method: str, stored: dict[str, Any]) -> Iterator[Scheme]:
    """Methods with one scheme for the model, and exceptions from it for single modules."""
    bits = next((found for key in ("bits", "w_bit", "nbits") if (found := whole(stored.get(key)))), None)
    size = whole(stored.get("group_size", stored.get("q_group_size")))
    if method == "bitsandbytes":
        yield _bitsandbytes(stored)
    elif "fp8" in method:
        block = stored.get("weight_block_size")
        tile = "×".join(map(str, block)) if isinstance(block, list) else ""
        yield Scheme(8, None, True, FLOAT, 8, block=tile)
    elif method == "mxfp4":
        yield Scheme(4, 32, True, FLOAT)
    else:
        symmetric = stored.get("sym")
        if symmetric is None and "zero_point" in stored:
            symmetric = not stored["zero_point"]
        order = "group" if stored.get("desc_act") and size != WHOLE_ROW else ""
        first = Scheme(bits, size, symmetric, order=order)
        yield first
        rules = stored.get("dynamic")
        for rule, changes in rules.items() if isinstance(rules, dict) else ():
            if rule.startswith("-:") or not isinstance(changes, dict) or not changes:
                continue
            yield Scheme(
                whole(changes.get("bits")) or bits,
                whole(changes.get("group_size")) or size,
                changes.get("sym", symmetric),
                order="group" if changes.get("desc_act", stored.get("desc_act")) else "",
                targets=(rule.removeprefix("+:"),),
            )


def _bitsandbytes(stored: dict[str, Any]) -> Scheme:
    if not (stored.get("load_in_4bit") or stored.get("_load_in_4bit")):
        return Scheme(8, WHOLE_ROW, True, activations=8)
    kind = str(stored.get("bnb_4bit_quant_type") or "fp4")
    return Scheme(4, None, None, FLOAT, format=kind)


def _modelopt(stored: dict[str, Any]) -> tuple[str, tuple[Scheme, ...], str, tuple[str, ...]]:
    inner = stored.get("quantization")
    inner = inner if isinstance(inner, dict) else stored
    algorithm = str(inner.get("quant_algo") or "")
    left = kept(inner) or kept(stored)
    if "FP4" in algorithm.upper():
        size = whole(inner.get("group_size")) or 16
        return "modelopt_fp4", (Scheme(4, size, True, FLOAT, 4, format=algorithm),), algorithm, left
    if "FP8" in algorithm.upper():
        return "modelopt", (Scheme(8, None, True, FLOAT, 8, format=algorithm),), algorithm, left
    return "modelopt", (), algorithm, left


def _compressed(stored: dict[str, Any]) -> tuple[str, tuple[Scheme, ...], str, tuple[str, ...]]:
    groups = stored.get("config_groups")
    found = [
        _group(group)
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict) and isinstance(group.get("weights"), dict)
    ]
    return "compressed-tensors", tuple(found), str(stored.get("format") or ""), kept(stored)


def _group(group: dict[str, Any]) -> Scheme:
    weights, inputs = group["weights"], group.get("input_activations")
    number = FLOAT if weights.get("type") == "float" else INT
    tile = weights.get("block_structure")
    strategy = weights.get("strategy")
    size = whole(weights.get("group_size"))
    if size is None and strategy not in ("tensor", "block"):
        size = WHOLE_ROW
    order = weights.get("actorder")
    targets = group.get("targets")
    return Scheme(
        whole(weights.get("num_bits")),
        size,
        weights.get("symmetric") is not False,
        number,
        whole(inputs.get("num_bits")) if isinstance(inputs, dict) else None,
        "group" if order in ("group", "dynamic", True) else "",
        "×".join(map(str, tile)) if isinstance(tile, list) and strategy == "block" else "",
        tuple(str(target) for target in targets) if isinstance(targets, list) else (),
        str(group.get("format") or ""),
    )


def _producer(stored: dict[str, Any]) -> str:
    producer = stored.get("producer")
    return str(producer.get("name") or "") if isinstance(producer, dict) else ""


def _and(first: Sentence, second: Sentence) -> Sentence:
    return Sentence("{first}, {second}", {"first": first, "second": second})


def _readable(target: str) -> str:
    """A pattern as people write it, "*.q_proj" for "re:.*\\.q_proj$"; any other regular expression as it is."""
    if not target.startswith("re:"):
        return target
    glob = target[3:].removesuffix("$").replace(".*", "*").replace("\\.", ".")
    return glob if re.fullmatch(r"[\w.*-]+", glob) else target
