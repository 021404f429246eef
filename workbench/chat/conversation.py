"""A conversation: turns, each one prompt and a reply by side."""

import time
from dataclasses import dataclass, field
from typing import Any

from workbench.chat import rendering
from workbench.runs import Reply

SIDES = ("original", "quantized")
TITLE_LENGTH = 60


@dataclass(slots=True)
class Turn:
    """One prompt, what was in force for it, and the replies by side. `id` is the store's, 0 while unsaved."""

    prompt: str
    sampling: dict[str, Any] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    at: float = field(default_factory=time.time)
    together: bool = False
    id: int = 0


@dataclass(slots=True)
class Conversation:
    """Turns in order; `id` is the store's, 0 while nothing of it is saved."""

    turns: list[Turn] = field(default_factory=list)
    system: str = ""
    at: float = field(default_factory=time.time)
    id: int = 0

    @property
    def title(self) -> str:
        return title_of(self.turns[0].prompt) if self.turns else ""


def title_of(prompt: str) -> str:
    """The first line of a prompt, cut at a word where it is long."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def messages(conversation: Conversation, side: str, prompt: str) -> list[dict[str, str]]:
    """What to send to `side` for the next prompt.

    Reasoning is not sent back. A turn that this side never answered is left out whole: templates want the roles to
    alternate.
    """
    sent = [{"role": "system", "content": conversation.system}] if conversation.system else []
    for turn in conversation.turns:
        reply = turn.replies.get(side)
        if reply and (text := rendering.answer(reply.text).strip()):
            sent.append({"role": "user", "content": turn.prompt})
            sent.append({"role": "assistant", "content": text})
    return [*sent, {"role": "user", "content": prompt}]
