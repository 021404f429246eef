"""What is seen inside an engine core: its KV cache by blocks, its steps and its requests; see events.py."""

import base64
import zlib
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Every block of one engine core's KV cache at one moment; the caches of several groups share these blocks.

    `packed` is base64 of zlib of one byte a block, in the order of their numbers: the low seven bits are how many
    requests hold it (126: that many or more; `NULL`: the block that vLLM keeps for itself), the high bit `HASHED` that
    its content can be found again. So 0 is free, HASHED alone free and still cached. `used` are the held blocks (so
    vLLM's usage is used / (total - 1)), `cached` the free ones with a hash. `unfilled` are the token slots in the
    running requests' blocks that hold no token yet; None with several groups, whose blocks are not of one size.
    `rank` is the core's number in data parallel.
    """

    NULL: ClassVar[int] = 127
    HASHED: ClassVar[int] = 128

    at_s: float
    total: int
    used: int
    cached: int
    packed: str
    block_size: int | None = None
    unfilled: int | None = None
    groups: int = 1
    rank: int = 0

    @property
    def states(self) -> bytes:
        """The byte of each block [total]."""
        return zlib.decompress(base64.b64decode(self.packed))


@dataclass(frozen=True, slots=True)
class StepsDone:
    """Steps that one engine core has computed since its last report, as columns of one length.

    `at_s` is a step's end. `prefill` counts the prompt tokens that it computed (what a preempted request computes anew
    too), `decode` the positions of requests that already answer (their drafts included), `output` the tokens that came
    out, `requests` those that took part (the batch), `running` and `waiting` those at the step's end, `preempted` those
    put back by this step. `missed` steps before these were not kept: nobody fetched them.
    """

    at_s: tuple[float, ...]
    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    output: tuple[int, ...]
    requests: tuple[int, ...]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    preempted: tuple[int, ...]
    missed: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class RequestsDone:
    """Requests that ended in one engine core since its last report, whoever sent them, as columns of one length.

    By the core's clock: `queue_s` from arrival to the first step, `first_s` from there to the first token, `between_s`
    the mean from one token to the next after it (None with one token), `tokens` those that came out. Their sum
    queue_s + first_s is the time to first token without what the HTTP server adds. Aborted requests are left out.
    """

    at_s: tuple[float, ...]
    queue_s: tuple[float | None, ...]
    first_s: tuple[float | None, ...]
    between_s: tuple[float | None, ...]
    tokens: tuple[int, ...]
    rank: int = 0


@dataclass(frozen=True, slots=True)
class UsageOnly:
    """This engine tells how full its KV cache is, but not which block holds what, nor its steps; a template why."""

    reason: str
    values: dict[str, Any] = field(default_factory=dict)
