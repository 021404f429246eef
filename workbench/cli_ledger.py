"""`lathe ledger`: who holds this machine's memory, and what a start does where others hold it."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import terminal
from workbench.engine.idle import Idle
from workbench.engine_events import EngineReady, EngineSample
from workbench.errors import WorkbenchError
from workbench.events import Event, LegEvent, Note
from workbench.words import say

if TYPE_CHECKING:  # the program starts without them
    from workbench.admission import Ask
    from workbench.book import Book, Entry

Wait = Annotated[bool, typer.Option("--wait", help="Where others hold the memory: start when it is free.")]
Anyway = Annotated[bool, typer.Option("--anyway", help="Start also where others hold the memory.")]


def ledger(
    stop: Annotated[str, typer.Option("--stop", help="End the one of this number, in whatever Lathe.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")] = False,
) -> None:
    """The running jobs and engines of every Lathe: the memory that each stated and what it really holds."""
    from workbench import ledger as ledgers

    book = ledgers.book()
    if stop:
        found = next((held.entry for held in book.held if _number(held.entry) == stop.lower()), None)
        if found is None:
            raise WorkbenchError("The ledger has no number {number}.", "`lathe ledger` lists it.", number=stop)
        ledgers.stop(found)
    elif as_json:
        terminal.print_json(_plain(book))
    else:
        _print(book)


def asking(wait: bool, anyway: bool) -> "Ask":
    """The answer that the options give to a conflict; without any it is refused."""
    from workbench import admission

    if wait and anyway:
        raise WorkbenchError("--wait and --anyway exclude each other.", "Give one of them.")
    return admission.wait if wait else admission.anyway if anyway else admission.refuse


class Unloading:
    """Ends what serves when its engines had nothing to do for so many minutes; None: never."""

    def __init__(self, minutes: float | None):
        self._minutes = minutes
        self._idle: Idle | None = None
        self._over = asyncio.Event()

    def take(self, event: Event) -> None:
        """Take what it tells, also what its engines tell as LegEvent."""
        leg, own = (event.leg, event.event) if isinstance(event, LegEvent) else ("", event)
        if isinstance(event, EngineReady):
            self._idle = Idle()
        elif self._idle and isinstance(own, EngineSample):
            idle_s = self._idle.seconds(own, leg)
            if self._minutes and idle_s >= 60 * self._minutes:
                self._over.set()

    async def run(self, name: str, serving: Coroutine[Any, Any, None]) -> Note | None:
        """Run it to its end; what to say where it was ended for idleness."""
        tasks = asyncio.ensure_future(serving), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        values = {"name": name, "minutes": f"{self._minutes:g}"}
        return Note("{name} had nothing to do for {minutes} {minutes:minute|minutes} and is unloaded.", values)


def _number(entry: "Entry") -> str:
    """What it is called on the command line: the same for as long as it runs, whatever else begins and ends."""
    return entry.id[:6]


def _plain(book: "Book") -> dict[str, Any]:
    return {
        "devices": {
            device: {"name": room.name, "total": room.total, "free": room.free, "left": book.left(device)}
            for device, room in book.rooms.items()
        },
        "held": [
            {
                "number": _number(held.entry), "kind": held.entry.kind, "name": held.entry.name,
                "since": held.entry.since, "owner": held.entry.owner[0], "pid": held.entry.root[0] or None,
                "stated": dict(held.entry.needs), "held": dict(held.used), "pending": dict(held.pending),
            }
            for held in book.held
        ],
    }  # fmt: skip


def _print(book: "Book") -> None:
    from workbench import figures

    for device, room in book.rooms.items():
        told = say(
            "{device}: {free} of {total} free, {left} left when all have taken what they stated",
            device=room.name, free=figures.bytes_of(room.free), total=figures.bytes_of(room.total),
            left=figures.bytes_of(max(0, book.left(device))),
        )  # fmt: skip
        terminal.out.print(told, markup=False)
    if not book.held:
        terminal.out.print(say("No job and no engine of Lathe holds memory."))
        return
    rows = []
    for held in book.held:
        for device in held.entry.needs or ("cpu",):
            stated, used = (figures.bytes_of(sizes.get(device)) for sizes in (held.entry.needs, held.used))
            # A GPU of another Lathe may not be seen from here.
            name = book.rooms[device].name if device in book.rooms else device
            rows.append((_number(held.entry), held.entry.title, name, stated, used))
    terminal.table(("", "", say("Device"), say("stated"), say("really held")), rows)


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command()(ledger)
