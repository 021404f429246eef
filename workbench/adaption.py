"""A draft brought to its target's vocabulary: which rows go where, and what the copy takes; judged from headers."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.catalog import vocabulary
from workbench.catalog.folder import inspect
from workbench.catalog.headers import Tensor
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError

_PLAIN = ("F32", "F16", "BF16")
_IN_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.\d+\.")  # an MLP may be as high as the vocabulary


@dataclass(frozen=True)
class Adaption:
    """`rows` holds for each of the target's ids the draft's row, None for a token that the draft has not.

    `tensors` are the names of those with one row a token.
    """

    draft: Model
    target: Model
    rows: tuple[int | None, ...] = field(repr=False)
    tensors: tuple[str, ...]

    @property
    def size(self) -> int:
        """Rows of the copy: the target's vocabulary with its padding."""
        return len(self.rows)

    @property
    def predicted_bytes(self) -> int:
        rows = [tensor for tensor in self.draft.tensors if tensor.name in self.tensors]
        return self.draft.weight_bytes + sum(
            tensor.bytes * self.size // tensor.shape[0] - tensor.bytes for tensor in rows
        )


def plan(draft: Path, target: Path) -> Adaption:
    """How `draft` is adapted to `target`; a WorkbenchError says why it cannot or need not be."""
    ours, theirs = inspect(draft), inspect(target)
    words = [vocabulary.read(model.folder) for model in (theirs, ours)]
    if None in words or not ours.vocab or not theirs.vocab:
        raise WorkbenchError(
            "The tokens of {name} are not listed in a file that is known here.", "Copy tokenizer.json into its folder.",
            name=(theirs if words[0] is None else ours).name,
        )  # fmt: skip
    match = vocabulary.compare(*words)
    if match.kind == "other":
        raise WorkbenchError(
            "The tokenizers of {draft} and {target} differ beyond their added tokens: no copy can bring them together.",
            "Choose a draft of the model's own family.", draft=ours.name, target=theirs.name,
        )  # fmt: skip
    if ours.vocab == theirs.vocab and not match.moved:
        raise WorkbenchError("{draft} fits {target} as it is.", "Use it as the draft.", draft=ours.name,
                             target=theirs.name)  # fmt: skip
    tensors = tuple(
        each for each in ours.tensors if each.shape[:1] == (ours.vocab,) and not _IN_BLOCK.search(each.name)
    )
    for tensor in tensors:
        _check(tensor, ours)
    if not tensors:
        raise WorkbenchError(
            "No tensor of {name} has a row for each of its {size} tokens.", "Choose another draft.",
            name=ours.name, size=ours.vocab,
        )  # fmt: skip
    rows = vocabulary.rows(*words, theirs.vocab, ours.vocab)
    return Adaption(ours, theirs, tuple(rows), tuple(tensor.name for tensor in tensors))


def spec(chosen: Adaption, output: Path) -> dict[str, Any]:
    """What a job of the kind "adapt" is asked to do."""
    folders = {"draft": chosen.draft.folder, "target": chosen.target.folder, "output": output}
    return {name: str(folder.resolve()) for name, folder in folders.items()}


def proposed(draft: Path, target: Path) -> Path:
    """A free folder beside the draft."""
    base = f"{draft.name}-for-{target.name}"
    number, folder = 1, draft.with_name(base)
    while folder.exists():
        number += 1
        folder = draft.with_name(f"{base}-{number}")
    return folder


def _check(tensor: Tensor, model: Model) -> None:
    if tensor.dtype not in _PLAIN:
        raise WorkbenchError(
            "{tensor} of {name} is quantized, so that its rows cannot be filled up.",
            "Adapt the original draft, then quantize the copy.", tensor=tensor.name, name=model.name,
        )  # fmt: skip
