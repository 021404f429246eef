"""Do two engines fit beside each other? Arithmetic over what each needs and what the device has free."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from workbench import figures, ledger
from workbench.catalog.capacity import devices
from workbench.catalog.folder import inspect
from workbench.engine.fit import Need, need
from workbench.engine.profile import Profile
from workbench.memory import HOST, gpu
from workbench.words import Sentence

Order = Literal["at once", "in turn", "one at a time"]

SPARED = 0.03
"""Share of the free memory left alone: drivers, the desktop and fragments take some meanwhile."""


@dataclass(frozen=True)
class Together:
    """How a pair is started, why, and on a GPU the share of its whole memory that each may take.

    "at once": both load at the same time. "in turn": both run, the second loads when the first is ready (vLLM
    measures free GPU memory while it loads, so two that load at once take each other's memory for their own).
    "one at a time": the first must be stopped before the second starts.
    """

    order: Order
    note: Sentence
    shares: tuple[float, float] | None = None

    def shared(self, profiles: Iterable[Profile]) -> list[Profile]:
        """The pair with these shares; one that the user chose stays."""
        shares = self.shares or (None, None)
        return [
            replace(profile, memory_share=profile.memory_share or share)
            for profile, share in zip(profiles, shares, strict=True)
        ]


def decide(first: Need, second: Need, free_bytes: int, total_bytes: int, kind: str) -> Together:
    """The order for two engines on a device of `kind` "cpu" or "gpu"."""
    usable = int(free_bytes * (1 - SPARED))
    needed = first.total + second.total
    told = {"need": figures.bytes_of(needed), "free": figures.bytes_of(free_bytes)}
    if needed > usable:
        alone = Sentence("Both engines need {need} and {free} are free: they run one after the other.", told)
        return Together("one at a time", alone)
    if kind != "gpu":
        return Together("at once", Sentence("Both engines need {need} of {free} free: they start together.", told))
    # vLLM reserves its whole share at once: what is left over becomes KV of both alike.
    spare = (usable - needed) // 2
    shares = tuple(math.floor((need.total + spare) / total_bytes * 100) / 100 for need in (first, second))
    if any(share * total_bytes < need.fixed for share, need in zip(shares, (first, second), strict=True)):
        alone = Sentence("Both engines need {need} and {free} are free: they run one after the other.", told)
        return Together("one at a time", alone)
    note = Sentence("Both engines need {need} of {free} free: the second starts when the first is ready.", told)
    return Together("in turn", note, shares)


def of_profiles(first: Profile, second: Profile) -> Together:
    """The order for two profiles on this machine's first device, in what nobody holds or will still take of it.

    Reads both models' headers.
    """
    device = devices()[0]
    left = ledger.book().left(HOST if device.kind == "cpu" else gpu(0))
    needs = [need(inspect(profile.model), profile, device) for profile in (first, second)]
    return decide(*needs, max(0, left), device.total_bytes, device.kind)
