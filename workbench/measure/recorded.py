"""What the live figures of an engine were: bounded columns, newest last."""

from collections import deque
from dataclasses import dataclass, field

from workbench.core_events import BlockMap, RequestsDone, StepsDone

STEPS = 36_000
REQUESTS = 5_000
MAPS = 18_000  # half an hour at ten a second


def _of_steps() -> deque:
    return deque(maxlen=STEPS)


def _of_requests() -> deque:
    return deque(maxlen=REQUESTS)


def _of_maps() -> deque:
    return deque(maxlen=MAPS)


@dataclass(slots=True)
class Steps:
    """Steps of the engine's cores as columns of one length; see StepsDone. `missed` were computed and not recorded."""

    at_s: deque[float] = field(default_factory=_of_steps)
    prefill: deque[int] = field(default_factory=_of_steps)
    decode: deque[int] = field(default_factory=_of_steps)
    output: deque[int] = field(default_factory=_of_steps)
    requests: deque[int] = field(default_factory=_of_steps)
    running: deque[int] = field(default_factory=_of_steps)
    waiting: deque[int] = field(default_factory=_of_steps)
    preempted: deque[int] = field(default_factory=_of_steps)
    rank: deque[int] = field(default_factory=_of_steps)
    missed: int = 0

    def add(self, done: StepsDone) -> None:
        """The steps of one report."""
        for name in ("at_s", "prefill", "decode", "output", "requests", "running", "waiting", "preempted"):
            getattr(self, name).extend(getattr(done, name))
        self.rank.extend([done.rank] * len(done.at_s))
        self.missed += done.missed


@dataclass(slots=True)
class Requests:
    """Requests that ended, as columns of one length; see RequestsDone."""

    at_s: deque[float] = field(default_factory=_of_requests)
    queue_s: deque[float | None] = field(default_factory=_of_requests)
    first_s: deque[float | None] = field(default_factory=_of_requests)
    between_s: deque[float | None] = field(default_factory=_of_requests)
    tokens: deque[int] = field(default_factory=_of_requests)

    def add(self, done: RequestsDone) -> None:
        """The requests of one report."""
        for name in ("at_s", "queue_s", "first_s", "between_s", "tokens"):
            getattr(self, name).extend(getattr(done, name))


@dataclass(slots=True)
class Blocks:
    """The KV cache's blocks over time, as columns of one length; `latest` holds the last map of each core by rank."""

    at_s: deque[float] = field(default_factory=_of_maps)
    used: deque[int] = field(default_factory=_of_maps)
    cached: deque[int] = field(default_factory=_of_maps)
    usable: deque[int] = field(default_factory=_of_maps)
    unfilled: deque[int | None] = field(default_factory=_of_maps)
    rank: deque[int] = field(default_factory=_of_maps)
    latest: dict[int, BlockMap] = field(default_factory=dict)

    def add(self, map_: BlockMap) -> None:
        """One more moment of one core."""
        self.latest[map_.rank] = map_
        for name in ("at_s", "used", "cached", "unfilled", "rank"):
            getattr(self, name).append(getattr(map_, name))
        self.usable.append(map_.total - 1)
