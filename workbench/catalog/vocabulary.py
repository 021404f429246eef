"""The tokens of a model by content, and how two models' tokens stand to each other; read from files, nothing loaded.

A draft is given its target's token ids, so what counts is that an id stands for the same text in both.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench import json_file

# Beside the merges, how text becomes tokens; the parts that only write text again are left out.
_CUTTING = ("normalizer", "pre_tokenizer")
_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json")


@dataclass(frozen=True)
class Vocabulary:
    """`ids` maps the text of every token to its id; `added` are the texts that are taken whole, markers of a chat say.

    `merges` and `cutting` are digests of what decides how text is cut into tokens: the merges or scores, and the
    normalizer with what else comes before them, None where the files do not say.
    """

    ids: Mapping[str, int] = field(repr=False)
    added: frozenset[str]
    merges: str
    cutting: str | None


@dataclass(frozen=True)
class Match:
    """How a draft's tokens stand to its target's.

    `kind` is "same" (every id means the same), "added" (only tokens that are taken whole differ) or "other". `moved`
    are added tokens that both have under different ids, `absent` those that the draft has not, in the target's order.
    `alike` of the target's `total` tokens have their id in the draft. `cut_alike` says whether text is cut alike.
    """

    kind: str
    moved: tuple[str, ...]
    absent: tuple[str, ...]
    alike: int
    total: int
    cut_alike: bool


def read(folder: Path) -> Vocabulary | None:
    """The tokens of the model in `folder`; None where no file lists them in a form that is known here."""
    stamps = _stamps(folder)
    return _read(folder, stamps) if stamps[0] or stamps[1] else None


def compare(target: Vocabulary, draft: Vocabulary) -> Match:
    """What of the target's tokens the draft has under the same id."""
    alike, other, moved, absent = 0, 0, [], []
    for text, number in sorted(target.ids.items(), key=lambda item: item[1]):
        found = draft.ids.get(text)
        if found == number:
            alike += 1
        elif text not in target.added and text not in draft.added:
            other += 1
        else:
            (absent if found is None else moved).append(text)
    kind = "other" if other else "added" if moved or absent else "same"
    total = len(target.ids)
    known = None not in (target.cutting, draft.cutting)
    cut_alike = target.merges == draft.merges and (not known or target.cutting == draft.cutting)
    return Match(kind, tuple(moved), tuple(absent), alike, total, cut_alike)


def match(target: Path, draft: Path) -> Match | None:
    """`compare` of two folders, remembered; None where the tokens of one of them cannot be read."""
    return _match(target, draft, _stamps(target), _stamps(draft))


def rows(target: Vocabulary, draft: Vocabulary, target_size: int, draft_size: int) -> list[int | None]:
    """For each id of a target of `target_size` ids the row that a draft has for it; None where it has none.

    A token that the draft does not know keeps the row at its id, unless that row's own token went elsewhere.
    """
    texts = {number: text for text, number in target.ids.items()}
    taken = {draft.ids[text] for text, number in target.ids.items() if draft.ids.get(text, number) != number}
    found: list[int | None] = []
    for number in range(target_size):
        row = draft.ids.get(texts.get(number, ""), number if number not in taken else draft_size)
        found.append(row if row < draft_size else None)
    return found


def same_files(target: Path, draft: Path) -> bool:
    """Whether both hold the same sentencepiece model, which only its own library could read."""
    files = [folder / "tokenizer.model" for folder in (target, draft)]
    try:
        return files[0].read_bytes() == files[1].read_bytes()
    except OSError:
        return False


@lru_cache(maxsize=512)
def _match(target: Path, draft: Path, _target_stamps: tuple, _draft_stamps: tuple) -> Match | None:
    ours, theirs = read(target), read(draft)
    return None if ours is None or theirs is None else compare(ours, theirs)


def _stamps(folder: Path) -> tuple[tuple[int, int] | None, ...]:
    return tuple(_stamp(folder / name) for name in _FILES)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)  # one of 150,000 tokens takes some 20 MB
def _read(folder: Path, _stamps: tuple) -> Vocabulary | None:
    try:
        file = folder / "tokenizer.json"
        return _whole(_json(file)) if file.is_file() else _parts(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _whole(content: dict[str, Any]) -> Vocabulary:
    """tokenizer.json of Hugging Face's tokenizers."""
    model = content["model"]
    vocab = model["vocab"]
    # Unigram lists [text, score] in the order of the ids, the others map text to id.
    ids = dict(vocab) if isinstance(vocab, dict) else {text: number for number, (text, _) in enumerate(vocab)}
    whole = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    merges = [each if isinstance(each, str) else " ".join(each) for each in model.get("merges") or ()]
    scores = [] if isinstance(vocab, dict) else [score for _, score in vocab]
    before = [content.get(part) for part in _CUTTING]
    return Vocabulary(ids | whole, frozenset(whole), _digest([model.get("type"), merges, scores]), _digest(before))


def _parts(folder: Path) -> Vocabulary:
    """The older pair of vocab.json and merges.txt."""
    ids = _json(folder / "vocab.json")
    whole = _json(folder / "added_tokens.json") if (folder / "added_tokens.json").is_file() else {}
    lines = (
        (folder / "merges.txt").read_text(encoding="utf-8").splitlines() if (folder / "merges.txt").is_file() else []
    )
    merges = [line for line in lines if line and not line.startswith("#version")]
    return Vocabulary(ids | whole, frozenset(whole), _digest(["BPE", merges, []]), None)


def _digest(how: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()


def _json(file: Path) -> dict[str, Any]:
    return json_file.read(file)
