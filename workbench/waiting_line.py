"""The queue that outlives the window: recipes that wait and what came of those before, kept in a file.

Window and command line may change it by turns; only one of them works through it.
"""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench import admission, json_file, named_files, overnight, paths
from workbench import recipe as recipes
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.overnight import PAGE, Entry, Outcome
from workbench.recipe import Recipe
from workbench.settings import Settings
from workbench.words import Sentence


class WaitingLine:
    """`entries` in their order; `current` is the one at work here. Every change is kept at once."""

    def __init__(self):
        self.entries: list[Entry] = []
        self.current: Entry | None = None
        self._seen = 0
        self.refresh()

    @property
    def waiting(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.outcome is None and entry is not self.current]

    def refresh(self) -> bool:
        """Read anew what another program changed; whether it did."""
        stamp = _stamp(_file())
        if stamp == self._seen:
            return False
        known = {entry.output: entry for entry in self.entries}
        self.entries = [known.get(entry.output, entry) for entry in _read(_file())]
        if self.current and self.current not in self.entries:
            self.entries.insert(0, self.current)
        self._seen = stamp
        return True

    def add(self, model: Path, recipe: Recipe, directory: Path) -> Entry:
        """Put a recipe at the end; its result gets a name in `directory` that is free."""
        self.refresh()
        entry = overnight.entry(model, recipe, directory, self.entries, free=True)
        self.entries.append(entry)
        self._write()
        return entry

    def remove(self, entry: Entry) -> None:
        """Take an entry out; a result that is there stays. The one at work cannot be taken out."""
        self.refresh()
        if entry is not self.current and entry in self.entries:
            self.entries.remove(entry)
            self._write()

    def move(self, entry: Entry, step: int) -> None:
        """Let a waiting entry come so many places later, or earlier, among those that wait."""
        self.refresh()
        waiting = self.waiting
        to = waiting.index(entry) + step if entry in waiting else -1
        if 0 <= to < len(waiting):
            one, other = self.entries.index(entry), self.entries.index(waiting[to])
            self.entries[one], self.entries[other] = self.entries[other], self.entries[one]
            self._write()

    async def run(self, settings: Settings, on_event: Callable[[Entry, Event], None]) -> None:
        """Work until nothing waits. What is cancelled waits again; its finished blocks are taken over then. One for
        which there is no memory beside what runs waits for that.

        Raises WorkbenchError where another program works through it.
        """
        with _alone():
            while waiting := self.waiting:
                entry = self.current = waiting[0]
                try:
                    ended = await overnight.made(
                        entry, settings, lambda event, entry=entry: on_event(entry, event), ask=admission.wait
                    )
                    self.refresh()
                    entry.outcome = ended
                finally:
                    self.current = None
                self._write()

    def page(self) -> Path:
        """What came of all, as a page."""
        page = paths.home() / PAGE
        page.write_text(overnight.page(self.entries), encoding="utf-8")
        return page

    def _write(self) -> None:
        stored = [
            {"model": str(entry.model), "recipe": recipes.to_dict(entry.recipe), "output": str(entry.output)}
            | ({"outcome": _stored(entry.outcome)} if entry.outcome else {})
            for entry in self.entries
        ]
        named_files.write_text(json.dumps(stored, indent=1, ensure_ascii=False, default=str), _file())
        self._seen = _stamp(_file())


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the queue against other programs; the system lets go of it however this one ends."""
    with (paths.home() / "queue.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise WorkbenchError(
                "The queue is at work in another window or terminal.", "Let it end there, or stop it there."
            ) from error
        yield


def _file() -> Path:
    return paths.home() / "queue.json"


def _stamp(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _stored(outcome: Outcome) -> dict[str, Any]:
    failure = outcome.failure
    return asdict(outcome) | {
        "output": str(outcome.output),
        "job": str(outcome.job) if outcome.job else None,
        "failure": asdict(failure) if failure else None,
    }


def _read(file: Path) -> list[Entry]:
    """What was kept; nothing where the file is missing. A damaged file is set aside, not lost."""
    try:
        return [_entry(stored) for stored in json_file.read(file)]
    except OSError:
        return []
    except (ValueError, KeyError, TypeError, AttributeError, WorkbenchError):
        with suppress(OSError):
            file.replace(file.with_suffix(".damaged"))
        return []


def _entry(stored: dict[str, Any]) -> Entry:
    entry = Entry(Path(stored["model"]), recipes.from_dict(stored["recipe"]), Path(stored["output"]))
    if found := stored.get("outcome"):
        entry.outcome = Outcome(
            **found
            | {
                "output": Path(found["output"]),
                "job": Path(found["job"]) if found["job"] else None,
                "failure": Sentence(**found["failure"]) if found["failure"] else None,
            }
        )
    return entry
