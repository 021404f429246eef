"""Prefill and decode apart: what the user chose, and whether these engines can hand work to each other.

Some engines read prompts (the prefill legs) and hand their KV cache to others that write the answers (the decode legs).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from workbench import figures, memory
from workbench.catalog.capacity import Device
from workbench.catalog.folder import inspect
from workbench.engine import address
from workbench.engine.fit import need
from workbench.engine.profile import Profile
from workbench.engine.profile import absolute as absolute_profile
from workbench.engine.together import SPARED
from workbench.errors import WorkbenchError
from workbench.words import Sentence

# What engines must have in common. In the first ones vLLM compares them when the first prompt is handed over, and
# refuses it; the others would give the answer of another prompt or model.
COMMON = ("model", "dtype", "kv_dtype", "attention", "speculation", "name", "adapters", "chat_template")
UNCACHED = ("ngram", "suffix", "medusa")  # these drafts keep nothing in the cache, so that legs may differ in them


@dataclass(frozen=True, slots=True)
class Leg:
    """One engine: started by us with `profile` on the GPUs `devices`, or running already at `url`.

    Without `devices` it gets GPUs that no other engine takes, as far as there are any (see `placed`).
    """

    profile: Profile | None = None
    devices: tuple[int, ...] = ()
    url: str = ""

    def __post_init__(self) -> None:
        if (self.profile is None) != bool(self.url):  # as a profile file can have it
            raise WorkbenchError(
                "An engine has either a profile or the URL where it runs.", "Give it one of them."
            )  # fmt: skip
        if len(set(self.devices)) < len(self.devices) or any(each < 0 for each in self.devices):
            raise WorkbenchError(
                "{devices} are no GPUs.", "Write the number of each once, such as 0,1.",
                devices=",".join(map(str, self.devices)),
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Separation:
    """The legs of one model, and the port of the front, 0 for a free one.

    `key` is what running legs ask for; legs that we start then take it too, else one of their own.
    """

    prefill: tuple[Leg, ...]
    decode: tuple[Leg, ...]
    port: int = 0
    key: str = ""

    def __post_init__(self) -> None:
        if not self.prefill or not self.decode:
            raise WorkbenchError("Apart, prefill and decode need an engine each.", "Name at least one of both.")
        if not 0 <= self.port <= 65535:
            raise WorkbenchError("{port} is no port.", "Choose 1024 to 65535, or 0 for a free one.", port=self.port)

        urls = [leg.url for leg in (*self.prefill, *self.decode) if leg.url]
        if twice := next((url for url in urls if urls.count(url) > 1), None):
            raise WorkbenchError(
                "The engine at {url} is named twice.", "Name each engine once: it reads prompts or writes answers.",
                url=twice,
            )  # fmt: skip

    @property
    def profile(self) -> Profile | None:
        """The profile of what writes the answers; None where others run that."""
        return next((leg.profile for leg in self.decode if leg.profile), None)

    @property
    def shape(self) -> str:
        """How many read and how many write, such as 1P1D."""
        return f"{len(self.prefill)}P{len(self.decode)}D"

    def legs(self) -> dict[str, Leg]:
        """All legs by name, in the order of their start: "prefill" and "decode", numbered where there are several."""
        named = {}
        for role in ("prefill", "decode"):
            legs = getattr(self, role)
            for number, leg in enumerate(legs, 1):
                named[role if len(legs) == 1 else f"{role} {number}"] = leg
        return named


def read_devices(text: str) -> tuple[int, ...]:
    """The GPUs that a text such as "0,1" or "0 1" names; none where it is empty."""
    try:
        return tuple(int(each) for each in text.replace(",", " ").split())
    except ValueError:
        raise WorkbenchError(
            "{devices} are no GPUs.", "Write the number of each once, such as 0,1.", devices=text
        ) from None


def spread(devices: tuple[int, ...], engines: int, width: int) -> list[tuple[int, ...]]:
    """The GPUs of each of several engines: where there are enough for all a part of them each, else the same."""
    if engines > 1 and len(devices) == engines * width:
        return [devices[first : first + width] for first in range(0, len(devices), width)]
    return [devices] * engines


def together(legs: Iterable[Leg]) -> tuple[int, ...]:
    """The GPUs of engines of one kind, each once: what `spread` parts among them again."""
    return tuple(dict.fromkeys(gpu for leg in legs for gpu in leg.devices))


def role_of(name: str) -> str:
    """ "prefill" or "decode", of the leg of this name."""
    return name.split(" ")[0]


def label(name: str) -> Sentence:
    """A leg's name as people read it within a sentence."""
    number = {"number": name.partition(" ")[2]}
    if role_of(name) == "prefill":
        return Sentence("prefill engine {number}", number) if number["number"] else Sentence("prefill engine")
    return Sentence("decode engine {number}", number) if number["number"] else Sentence("decode engine")


def differing(what: Sentence, first: str, second: str) -> WorkbenchError:
    """That two legs cannot work together, because `what` is not the same."""
    return WorkbenchError(
        "{label} is not the same for the {first} and the {second}: one could not use the other's cache.",
        "Make it the same for both, then start again.", label=what, first=label(first), second=label(second),
    )  # fmt: skip


def of_profile(profile: Profile, prefill: int = 1, decode: int = 1) -> Separation:
    """So many engines of one profile; its port becomes the front's."""
    leg = Leg(replace(profile, port=0))
    return Separation((leg,) * prefill, (leg,) * decode, profile.port)


def absolute(separation: Separation) -> Separation:
    """The same engines, whatever folder their command is given in."""

    def settled(leg: Leg) -> Leg:
        return replace(leg, profile=leg.profile and absolute_profile(leg.profile))

    return replace(
        separation, prefill=tuple(map(settled, separation.prefill)), decode=tuple(map(settled, separation.decode))
    )


def of_urls(prefill: tuple[str, ...], decode: tuple[str, ...], key: str = "", port: int = 0) -> Separation:
    """Engines that run already, at addresses as people paste them."""
    legs = (tuple(Leg(url=address.read(url)) for url in urls) for urls in (prefill, decode))
    return Separation(*legs, port, key)


def problems(separation: Separation, devices: list[Device]) -> list[Sentence]:
    """What stands against a start on these devices; nothing where it can begin. Reads the models' headers."""
    legs = _started(separation, devices)
    found = [*_differences(legs), *_grouped(legs), *_absent(legs, devices)]
    return found or list(_memory(legs, devices))


def remarks(separation: Separation, devices: list[Device]) -> list[Sentence]:
    """What the user should know before a start."""
    found = [
        Sentence(
            "This is for the time to the first token and the time between tokens, each for itself; it does not raise "
            "the throughput."
        )
    ]
    if (engines := len(_started(separation, devices))) > 1:
        found.append(Sentence("Each of the {engines} engines loads the weights.", {"engines": engines}))
        if devices[0].kind == "cpu":
            found.append(Sentence("They share this processor's cores: good for trying it, hardly for speed."))
    if in_turn(separation, devices):
        found.append(Sentence("The engines share a GPU: each starts when the one before it is ready."))
    found.append(Sentence("The front asks for no key: every program on this machine can use it."))
    return found


def in_turn(separation: Separation, devices: list[Device]) -> bool:
    """Whether the engines must load one after the other: vLLM measures the free memory of its GPU while it loads."""
    taken = [gpu for leg in _started(separation, devices).values() for gpu in leg.devices]
    return len(taken) > len(set(taken))


def placed(separation: Separation, devices: list[Device]) -> Separation:
    """The same, where each engine that names no GPUs gets those that no other takes, else the first ones.

    Of the GPUs that our own environment leaves us, where it says so: others are somebody else's.
    """
    if devices[0].kind != "gpu":
        return separation
    ours = [gpu for gpu in memory.seen() if gpu < len(devices)] or list(range(len(devices)))
    taken = {gpu for leg in separation.legs().values() for gpu in leg.devices}

    def place(leg: Leg) -> Leg:
        if leg.profile is None or leg.devices:
            return leg
        free = [gpu for gpu in ours if gpu not in taken]
        width = leg.profile.devices
        chosen = tuple(free if len(free) >= width else ours)[:width]
        taken.update(chosen)
        return replace(leg, devices=chosen)

    return replace(
        separation, prefill=tuple(map(place, separation.prefill)), decode=tuple(map(place, separation.decode))
    )


def settled(separation: Separation, devices: list[Device]) -> Separation:
    """Placed, and each engine on a shared GPU with the share of its memory that it may take, unless one was chosen."""
    made = placed(separation, devices)
    sharing = _sharing(_started(separation, devices).values())

    def share(leg: Leg) -> Leg:
        if leg.profile is None or leg.profile.memory_share or all(len(sharing[gpu]) < 2 for gpu in leg.devices):
            return leg
        least = min(_share(leg, sharing[gpu], devices[gpu]) for gpu in leg.devices)
        return replace(leg, profile=replace(leg.profile, memory_share=least))

    return replace(made, prefill=tuple(map(share, made.prefill)), decode=tuple(map(share, made.decode)))


def _share(leg: Leg, there: list[Leg], device: Device) -> float:
    """Of a GPU's whole memory: what the engine needs, and its part of what those that share the GPU leave over."""
    spare = int(device.free_bytes * (1 - SPARED)) - sum(_needed(each, device) for each in there)
    return math.floor((_needed(leg, device) + max(0, spare) // len(there)) / device.total_bytes * 100) / 100


def _needed(leg: Leg, device: Device) -> int:
    return need(inspect(leg.profile.model), leg.profile, device).total


def _sharing(legs: Iterable[Leg]) -> dict[int, list[Leg]]:
    """The engines on each device; the processor counts as 0."""
    sharing: dict[int, list[Leg]] = {}
    for leg in legs:
        for gpu in leg.devices or (0,):
            sharing.setdefault(gpu, []).append(leg)
    return sharing


def _started(separation: Separation, devices: list[Device]) -> dict[str, Leg]:
    """The legs that we start, each with its GPUs."""
    return {name: leg for name, leg in placed(separation, devices).legs().items() if leg.profile}


def _differences(legs: dict[str, Leg]) -> Iterator[Sentence]:
    """Each field in which an engine differs from the first one and must not."""
    names = list(legs)
    for name in names[1:]:
        one, other = legs[names[0]].profile, legs[name].profile
        for field in COMMON:
            values = [_compared(profile, field) for profile in (one, other)]
            if values[0] != values[1]:
                error = differing(_label(field), names[0], name)
                yield Sentence(error.message, error.values)


def _compared(profile: Profile, field: str) -> Any:
    if field == "name":
        return profile.served_name
    value = getattr(profile, field)
    return None if field == "speculation" and value and value.method in UNCACHED else value


def _label(field: str) -> Sentence:
    if field == "model":
        return Sentence("The model's folder")
    return Sentence(next(each.metadata["label"] for each in fields(Profile) if each.name == field))


def _grouped(legs: dict[str, Leg]) -> Iterator[Sentence]:
    """Engines that write and have their layers in groups, which vLLM's connector refuses."""
    for name, leg in legs.items():
        if role_of(name) == "decode" and leg.profile.pipeline_parallel > 1:
            yield Sentence(
                "The {name} cannot have pipeline parallel: vLLM hands no cache over to such an engine.",
                {"name": label(name)},
            )


def _absent(legs: dict[str, Leg], devices: list[Device]) -> Iterator[Sentence]:
    """Engines for which there are too few GPUs."""
    for name, leg in legs.items():
        if devices[0].kind != "gpu":
            if leg.devices:
                yield Sentence("There is no GPU here for the {name}.", {"name": label(name)})
            continue
        width = leg.profile.devices
        if len(leg.devices) < width:
            told = {"name": label(name), "width": width, "given": len(leg.devices)}
            yield Sentence("The {name} is split over {width} GPUs and was given {given}.", told)
        elif missing := [gpu for gpu in leg.devices if gpu >= len(devices)]:
            told = {"name": label(name), "gpu": missing[0], "count": len(devices)}
            yield Sentence("The {name} needs GPU {gpu}; there are {count}, counted from 0.", told)


def _memory(legs: dict[str, Leg], devices: list[Device]) -> Iterator[Sentence]:
    """Devices on which what shares them has no room."""
    for gpu, there in _sharing(legs.values()).items():
        device = devices[gpu]
        if len(there) < 2:
            continue
        needed = sum(_needed(leg, device) for leg in there)
        if needed > device.free_bytes:
            told = {
                "engines": len(there),
                "need": figures.bytes_of(needed),
                "free": figures.bytes_of(device.free_bytes),
            }
            yield Sentence("{engines} engines need {need} on one device and {free} are free.", told)
        shares = [leg.profile.memory_share for leg in there]
        if device.kind == "gpu" and all(shares) and sum(shares) > 1:
            yield Sentence(
                "The memory shares of GPU {gpu} add up to {sum}.", {"gpu": gpu, "sum": figures.percent(sum(shares))}
            )
