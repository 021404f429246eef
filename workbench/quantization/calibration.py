"""The text that shows which inputs matter, cut into token sequences without padding."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from workbench import paths
from workbench.errors import WorkbenchError, first_line
from workbench.quantization.dialogue import token_ids

DOCUMENT = "<|document|>"
BATCH_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token sequences of up to `length` tokens; every token of the text that was taken is in exactly one."""

    pieces: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.pieces))

    def batches(self) -> Iterator[Tensor]:
        """int64 [batch, length] of equal lengths, so that no padding is needed; about 4096 tokens each."""
        by_length: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for piece in self.pieces:
            by_length[len(piece)].append(piece)
        for length, pieces in sorted(by_length.items()):
            rows = max(1, BATCH_TOKENS // length)
            for at in range(0, len(pieces), rows):
                yield torch.tensor(pieces[at : at + rows])


def tokenizer_of(folder: Path) -> PreTrainedTokenizerBase:
    """The model's tokenizer, from its folder alone."""
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # its files may hold anything, and each reader raises its own
        raise WorkbenchError(
            "The tokenizer in {folder} cannot be read: {reason}.", "Fetch the model's tokenizer files again.",
            folder=str(folder), reason=first_line(error),
        ) from error  # fmt: skip


def documents(source: Path) -> list[str]:
    """The texts of a .txt file, split at lines that hold only <|document|>, of a .jsonl file with a "text"
    field, or of all .txt files in a folder."""
    try:
        if source.is_dir():
            return _mixed([documents(file) for file in sorted(source.glob("*.txt"))])
        content = source.read_text(encoding="utf-8-sig")
        if source.suffix == ".jsonl":
            # Not splitlines(): JSON may hold the other line ends that Unicode knows.
            return [_text(line) for line in content.split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(
            "The text {path} cannot be read: {reason}.", "Choose a readable text file in UTF-8.",
            path=str(source), reason=getattr(error, "strerror", None) or str(error).rstrip("."),
        ) from error  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WorkbenchError(
            "The file {path} is not JSON lines with a text in each.",
            'Write one {{"text": "…"}} per line, or plain text.',
            path=str(source),
        ) from error
    parts, current = [], []
    for line in content.splitlines(keepends=True):
        if line.strip() == DOCUMENT:
            parts.append("".join(current))
            current = []
        else:
            current.append(line)
    return [part.strip() for part in (*parts, "".join(current)) if part.strip()]


def _text(line: str) -> str:
    found = json.loads(line)["text"]
    if not isinstance(found, str):
        raise TypeError(found)
    return found


def _mixed(files: list[list[str]]) -> list[str]:
    """The documents of several files so that any beginning holds about the same share of each."""
    placed = [((at + 0.5) / len(texts), text) for texts in files for at, text in enumerate(texts)]
    return [text for _, text in sorted(placed, key=lambda pair: pair[0])]


def own_text() -> list[str]:
    """The calibration text that comes with the program."""
    return documents(paths.RESOURCES / "calibration")


def held_text() -> list[str]:
    """Text for measuring, which no calibration has seen."""
    return documents(paths.RESOURCES / "held")


def sequences(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, length: int, budget: int, seed: int = 0
) -> Sequences:
    """Documents shuffled by `seed`, cut at `length`, until `budget` tokens are taken; conversations as the model's
    chat template renders them."""
    assert length > 0, length
    order = list(texts)
    random.Random(seed).shuffle(order)
    pieces: list[tuple[int, ...]] = []
    left = budget
    for text in order:
        ids = token_ids(text, tokenizer)[:left]
        pieces += [tuple(ids[at : at + length]) for at in range(0, len(ids), length)]
        left -= len(ids)
        if left <= 0:
            break
    if not pieces:
        raise WorkbenchError("The calibration text is empty.", "Choose a text with at least a few thousand words.")
    return Sequences(tuple(pieces))
