"""The requests of several engines in the order in which they ended, each with what is known of its time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from workbench.events import ReplyDone
from workbench.measure.recorded import Requests
from workbench.measure.series import between_tokens_s

MOST = 500


@dataclass(frozen=True, slots=True)
class Point:
    """One request in seconds. `queue_s` is the part of `ttft_s` that it waited; None where nobody measured that.

    `between_s` is the mean from one token to the next.
    """

    side: str
    ttft_s: float | None
    queue_s: float | None
    between_s: float | None


def points(recorded: Mapping[str, Requests], replies: Iterable[tuple[str, ReplyDone]]) -> list[Point]:
    """The last `MOST` requests.

    What a side's engine recorded holds every request, its `replies` only the chat's: they count where it recorded none.
    """
    told = [(side, columns) for side, columns in recorded.items() if columns.at_s]
    found = [pair for side, columns in told for pair in _of_engine(side, columns)]
    found.reverse()  # those of one report ended at one time: they stay in its order
    found.sort(key=lambda pair: pair[0])
    known = {side for side, _ in told}
    asked = [Point(side, reply.ttft_s, None, between_tokens_s(reply)) for side, reply in replies if side not in known]
    return (asked + [point for _, point in found])[-MOST:]


def _of_engine(side: str, columns: Requests) -> Iterable[tuple[float, Point]]:
    rows = zip(
        reversed(columns.at_s),
        reversed(columns.queue_s),
        reversed(columns.first_s),
        reversed(columns.between_s),
        strict=True,
    )
    for at_s, queue_s, first_s, between_s in islice(rows, MOST):
        ttft_s = None if queue_s is None or first_s is None else queue_s + first_s
        yield at_s, Point(side, ttft_s, queue_s, between_s)


def milliseconds(seconds: float | None) -> float | None:
    """The same time in milliseconds."""
    return None if seconds is None else seconds * 1000
