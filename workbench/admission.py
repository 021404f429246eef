"""The way into the ledger: what wants memory that others hold is asked about, waits, or starts all the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from workbench import ledger
from workbench.book import Shortage
from workbench.errors import WorkbenchError
from workbench.events import Event, Note, Stage
from workbench.words import Sentence

LOOK_S = 1.0
SOON_S = 0.2


@dataclass(frozen=True, slots=True)
class Offer:
    """The same in less memory: what it would be, and the changed profile or spec."""

    sentence: Sentence
    value: Any


class Conflict(WorkbenchError):
    """`wanted` does not fit beside those who stand in the way; `smaller` would."""

    def __init__(self, wanted: Sentence, shortage: Shortage, smaller: Offer | None):
        super().__init__(
            "{wanted} needs {needed} of memory, and {left} are left beside: {holders}.",
            "Wait for it with --wait, end what `lathe ledger` lists, or start all the same with --anyway.",
            wanted=str(wanted), **shortage.values,
        )  # fmt: skip
        self.wanted, self.shortage, self.smaller = wanted, shortage, smaller


class Smaller(Exception):
    """The smaller form was chosen: start that in place of this."""

    def __init__(self, offer: Offer):
        super().__init__(offer)
        self.offer = offer


# "again" looks once more and asks again if it still does not fit. Raises to start nothing: Conflict, Smaller, or
# CancelledError.
Ask = Callable[[Conflict], Awaitable[Literal["wait", "anyway", "again"]]]


async def anyway(_conflict: Conflict) -> Literal["anyway"]:
    """Start in any case; the entry is there all the same."""
    return "anyway"


async def wait(_conflict: Conflict) -> Literal["wait"]:
    """Start when it fits, or when nobody stands in the way any more."""
    return "wait"


async def refuse(conflict: Conflict) -> Literal["wait"]:
    """Start nothing and say why."""
    raise conflict


@asynccontextmanager
async def place(
    kind: str,
    name: str,
    needs: Mapping[str, int] | None,
    ask: Ask,
    on_event: Callable[[Event], None],
    smaller: Callable[[Shortage], Offer | None] = lambda shortage: None,
) -> AsyncIterator[Callable[[int], None]]:
    """Hold an entry for the length of the block; yields what is to be told the pid below which the work runs.

    `needs` in bytes by device, empty where they are not known; None is too little to be entered. While it waits it
    reports a Stage and for whom. `smaller` is asked for what would fit, in a thread.
    """
    if needs is None:
        yield lambda pid: None
        return
    entry = ledger.new(kind, name, needs)
    answer, told = "", ""
    while True:
        entered, short = ledger.claim(entry, await asyncio.to_thread(ledger.measure), answer == "anyway")
        if entered:
            break
        if not short.standing:
            await asyncio.sleep(SOON_S)
            continue
        if answer != "wait":
            answer = await ask(Conflict(entry.title, short, await asyncio.to_thread(smaller, short)))
            continue
        if told != short.values["holders"]:
            if not told:
                on_event(Stage("Waiting for memory"))
            told = short.values["holders"]
            on_event(Note("It starts when {needed} of memory are left. In the way: {holders}.", short.values))
        await asyncio.sleep(LOOK_S)
    try:
        if short and answer != "anyway":
            on_event(
                Note(
                    "It needs {needed} of memory and {left} are left; it is tried all the same.",
                    short.values,
                    "warning",
                )
            )
        yield partial(ledger.begun, entry)
    finally:
        ledger.release(entry)
