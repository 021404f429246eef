"""An answer's text cut into parts to show: prose, code, reasoning. Works on pieces as they stream in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

OPEN, CLOSE = "<think>", "</think>"
LONGEST_FENCE_LINE = 200  # a longer line that begins like a fence is prose

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?:(?P<ticks>`{3,})[ \t]*(?P<info>[^`]*)|(?P<waves>~{3,})[ \t]*(?P<winfo>.*))$")
_MAYBE_FENCE = re.compile(r"[ \t]*(`{0,2}|~{0,2}|`{3,}[^`]*|~{3,}.*)$")


@dataclass(frozen=True, slots=True)
class Text:
    """Prose, markdown as the model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """The inside of a fence; `language` as the fence names it, "" where it does not."""

    language: str
    text: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought before it answered; not `closed` when it was cut off or still goes on."""

    text: str
    closed: bool


Part = Text | Code | Reasoning


@dataclass(frozen=True, slots=True)
class Opened:
    """A new part begins; it is empty yet."""

    part: Part


@dataclass(frozen=True, slots=True)
class Added:
    """The current part grows by `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The current part, code or reasoning, got its end mark."""


@dataclass(frozen=True, slots=True)
class Folded:
    """All parts so far turn out to be one closed reasoning: a </think> came whose <think> was in the prompt."""


Change = Opened | Added | Closed | Folded


class Splitter:
    """Feed pieces, get changes; the cost of a piece does not depend on what came before.

    A fence mark or tag that is not complete yet is held back, so that nothing is shown as prose and jumps into a box
    later. `answer_at` is the offset in the whole text at which the answer begins, after any reasoning.
    """

    def __init__(self) -> None:
        self.answer_at = 0
        self._fed = 0
        self._held = ""
        self._state = self._beginning
        self._line_start = True
        self._part: type[Part] | None = None
        self._mark = self._indent = ""
        self._may_fold = True
        self._bare = False  # a reasoning of which nothing but line ends came yet

    def feed(self, piece: str) -> list[Change]:
        """The changes that `piece` brings."""
        self._fed += len(piece)
        self._held += piece
        changes: list[Change] = []
        while self._held and (step := self._state()) is not None:
            changes += step
        return changes

    def finish(self) -> list[Change]:
        """The changes that the end of the text brings: what was held back is what it looks like."""
        held, self._held = self._held, ""
        if self._state == self._in_code and self._line_start and self._is_end(held):
            return [Closed()]
        if self._state == self._in_text and self._line_start and (fence := _FENCE.match(held)):
            return [Opened(Code(_language(fence), "", False))]
        return self._add(held) if held else []

    # Each state takes what it can from the held text and returns the changes; None when it needs more text.

    def _beginning(self) -> list[Change] | None:
        text = self._held.lstrip()
        if text.startswith(OPEN):
            self._held, self._bare = text.removeprefix(OPEN), True
            self._state, self._part, self._may_fold = self._in_reasoning, Reasoning, False
            return [Opened(Reasoning("", False))]
        if OPEN.startswith(text):
            return None
        self._state = self._in_text
        return []

    def _in_reasoning(self) -> list[Change] | None:
        if self._bare:
            self._held = self._held.lstrip("\n")
        inside, mark, rest = self._held.partition(CLOSE)
        if mark:
            self._held = rest
            changes = self._add(inside.rstrip("\n")) if inside.strip("\n") else []
            return [*changes, *self._begin_answer(), Closed()]
        # A tag's beginning, and line ends that may precede it, wait.
        kept = max((n for n in range(len(CLOSE)) if inside.endswith(CLOSE[:n])), default=0)
        inside = inside[: len(inside) - kept].rstrip("\n")
        if not inside:
            return None
        self._held, self._bare = self._held[len(inside) :], False
        return self._add(inside)

    def _begin_answer(self) -> list[Change]:
        self._state, self._part, self._line_start = self._before_answer, None, True
        self._may_fold = False
        self.answer_at = self._fed - len(self._held)
        return []

    def _before_answer(self) -> list[Change] | None:
        self._held = self._held.lstrip()
        self.answer_at = self._fed - len(self._held)
        if not self._held:
            return None
        self._state = self._in_text
        return []

    def _in_text(self) -> list[Change] | None:
        line, end, rest = self._held.partition("\n")
        if self._line_start:
            if self._may_fold and line.lstrip().startswith(CLOSE):
                self._held = self._held.lstrip().removeprefix(CLOSE)
                self._begin_answer()
                return [Folded()]
            if len(line) <= LONGEST_FENCE_LINE:
                if end and (fence := _FENCE.match(line)):
                    return self._open_code(fence, rest)
                if not end and (_MAYBE_FENCE.match(line) or (self._may_fold and CLOSE.startswith(line.lstrip()))):
                    return None
        self._held = rest
        self._line_start = bool(end)
        return self._add(line + end)

    def _open_code(self, fence: re.Match, rest: str) -> list[Change]:
        self._held, self._state, self._part = rest, self._in_code, Code
        self._mark, self._indent = fence["ticks"] or fence["waves"], fence["indent"]
        return [Opened(Code(_language(fence), "", False))]

    def _in_code(self) -> list[Change] | None:
        line, end, rest = self._held.partition("\n")
        if self._line_start:
            if end and self._is_end(line):
                self._held, self._state, self._part = rest, self._in_text, None
                return [Closed()]
            bare = line.strip(" \t")
            if not end and bare == self._mark[0] * len(bare):
                return None
            # A fence inside a list is indented as a whole; its code is not.
            shared = len(line) - len(line.lstrip(" \t"))
            line = line[min(shared, len(self._indent)) :]
        self._held = rest
        self._line_start = bool(end)
        return [Added(line + end)]

    def _is_end(self, line: str) -> bool:
        bare = line.strip(" \t")
        return len(bare) >= len(self._mark) and bare == self._mark[0] * len(bare)

    def _add(self, text: str) -> list[Change]:
        if self._part is not None:
            return [Added(text)]
        self._part = Text
        return [Opened(Text("")), Added(text)]


def parts(text: str, reasoning: str = "", ended: bool = True) -> list[Part]:
    """The parts of an answer. `reasoning` is what the server sent apart; `ended` when no more will come."""
    splitter = Splitter()
    changes = splitter.feed(text)
    if ended:
        changes += splitter.finish()
    apart = [Reasoning(reasoning.strip("\n"), bool(text))] if reasoning else []
    shown = [_trimmed(part) for part in _folded(changes)]
    # Models that were told not to think still write the two tags.
    return apart + [part for part in shown if not (isinstance(part, Reasoning) and part.closed and not part.text)]


def _folded(changes: list[Change]) -> Iterator[Part]:
    found: list[Part] = []
    pieces: list[list[str]] = []
    for change in changes:
        match change:
            case Opened(part):
                found.append(part)
                pieces.append([])
            case Added(text):
                pieces[-1].append(text)
            case Closed():
                found[-1] = replace(found[-1], closed=True)
            case Folded():
                # The fences within are part of the thought; their marks are gone, which reading survives.
                pieces = [["".join(piece for part in pieces for piece in part)]]
                found = [Reasoning("", True)]
    for part, piece in zip(found, pieces, strict=True):
        yield replace(part, text="".join(piece))


def _trimmed(part: Part) -> Part:
    """The line end before a closing mark belongs to the mark."""
    if isinstance(part, Code) and part.closed:
        return replace(part, text=part.text.removesuffix("\n"))
    return replace(part, text=part.text.rstrip("\n")) if isinstance(part, Reasoning) else part


def answer(text: str) -> str:
    """The answer without the reasoning before it, as the model wrote it: what Copy takes and the next turn sends."""
    splitter = Splitter()
    changes = splitter.feed(text)
    if changes and isinstance(changes[0], Opened) and isinstance(changes[0].part, Reasoning):
        return text[splitter.answer_at :] if any(isinstance(change, Closed) for change in changes) else ""
    return text[splitter.answer_at :]


def _language(fence: re.Match) -> str:
    info = (fence["info"] or fence["winfo"] or "").split()
    return info[0] if info else ""
