"""What is stated, held and left of each device's memory, and who stands in the way of more: arithmetic alone."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from workbench import figures
from workbench.memory import Measured, Room
from workbench.words import Sentence

KINDS = {
    "engine": Sentence("Engine"),
    "quantize": Sentence("Quantization"),
    "quality": Sentence("Quality"),
    "statistics": Sentence("Calibration statistics"),
    "sensitivity": Sentence("Sensitivity scan"),
    "whatif": Sentence("Trials"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """`needs` in bytes by device; empty where they are not known. `owner` is the Lathe that holds it, `root` the
    process below which its work runs, both as pid and start in clock ticks after boot; (0, 0) before that runs."""

    id: str
    kind: str
    name: str
    needs: Mapping[str, int]
    since: float
    owner: tuple[int, int]
    boot: str
    root: tuple[int, int] = (0, 0)

    @property
    def title(self) -> Sentence:
        return Sentence("{kind} of {name}", {"kind": KINDS.get(self.kind, self.kind), "name": self.name})


@dataclass(frozen=True, slots=True)
class Held:
    """An entry with what it holds, in bytes by device: `used` as measured, absent where nobody tells; `pending` what
    it will still take."""

    entry: Entry
    used: Mapping[str, int]
    pending: Mapping[str, int]

    def gives(self, device: str) -> int:
        """What its end gives back."""
        return self.used.get(device, 0) + self.pending.get(device, 0)


@dataclass(frozen=True, slots=True)
class Shortage:
    """`device` has `left` bytes that nobody holds or will take, of `needed`; `standing` are those whose end helps.
    `left_on` is the same of every device."""

    device: str
    room: Room
    needed: int
    left_on: Mapping[str, int]
    standing: tuple[Held, ...]

    @property
    def left(self) -> int:
        return self.left_on[self.device]

    @property
    def missing(self) -> int:
        return self.needed - self.left

    @property
    def stops(self) -> list[tuple[Held, ...]]:
        """Which to end: each that is enough alone, else all of them together."""
        enough = [(held,) for held in self.standing if held.gives(self.device) >= self.missing]
        return enough or [self.standing]

    @property
    def values(self) -> dict[str, object]:
        return {
            "needed": figures.bytes_of(self.needed), "left": figures.bytes_of(max(0, self.left)),
            "device": self.room.name, "holders": ", ".join(str(held.entry.title) for held in self.standing),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Book:
    """All that is held, and the room there is."""

    held: tuple[Held, ...]
    rooms: Mapping[str, Room]

    def left(self, device: str) -> int:
        """What is free and nobody will still take; below 0 where more was stated than there is."""
        return self.rooms[device].free - sum(held.pending.get(device, 0) for held in self.held)

    def shortage(self, needs: Mapping[str, int]) -> Shortage | None:
        """Where most is missing; None where everything fits. Devices that are not here are nobody's."""
        left_on = {device: self.left(device) for device in self.rooms}
        found = [
            Shortage(device, self.rooms[device], needed, left_on, self._standing(device))
            for device, needed in needs.items()
            if device in self.rooms and needed > left_on[device]
        ]
        return max(found, key=lambda shortage: shortage.missing, default=None)

    def without(self, ids: Collection[str]) -> "Book":
        """As it will be when these have ended."""
        going = [held for held in self.held if held.entry.id in ids]
        rooms = {
            device: replace(room, free=room.free + sum(held.used.get(device, 0) for held in going))
            for device, room in self.rooms.items()
        }
        return Book(tuple(held for held in self.held if held.entry.id not in ids), rooms)

    def _standing(self, device: str) -> tuple[Held, ...]:
        helping = [held for held in self.held if held.gives(device) > 0]
        return tuple(sorted(helping, key=lambda held: held.gives(device), reverse=True))


def balanced(found: Collection[Entry], measured: Measured) -> Book:
    """Entries and figures brought together; an entry that came after the measuring has taken nothing yet."""
    hidden = {
        device: sum(entry.needs.get(device, 0) for entry in found if device not in _used(entry, measured))
        for device in measured.rooms
    }
    held = []
    for entry in found:
        used, pending = _used(entry, measured), {}
        for device, need in entry.needs.items():
            if device in used:
                pending[device] = max(0, need - used[device])
            elif device in measured.rooms:
                # Nobody tells whose it is: what is in use there counts as taken by those who stated a need.
                taken = min(1.0, measured.rooms[device].untold / max(1, hidden[device]))
                pending[device] = int(need * (1 - taken))
        held.append(Held(entry, used, pending))
    return Book(tuple(held), measured.rooms)


def _used(entry: Entry, measured: Measured) -> Mapping[str, int]:
    if not entry.root[0] or entry.root[0] not in measured.used:  # it did not run when that was measured
        return dict.fromkeys(entry.needs, 0)
    return measured.used[entry.root[0]]
