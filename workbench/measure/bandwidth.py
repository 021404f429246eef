"""How much of its memory's bandwidth an engine uses, estimated from its steps: no driver tells it while vLLM runs.

Each step reads the weights once, and the keys and values of every token that it holds. A draft's own reading and what
stays in a processor's cache are left out, so this is what must be read, not what was.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from workbench.catalog.devices import devices
from workbench.catalog.folder import inspect
from workbench.engine.fit import fit
from workbench.engine.profile import Profile
from workbench.engine_events import EngineSample
from workbench.errors import WorkbenchError
from workbench.runs import EngineRun


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that a step of one engine reads: `weights` in any case, `per_token` for each token held.

    `peak` is what the device's memory delivers at best, in bytes a second; None where it is not known.
    """

    weights: float
    per_token: int
    peak: float | None


def reading(profile: Profile) -> Reading | None:
    """What a step of this profile reads on this machine's first device; blocks for up to 0.3 s the first time.

    None where the model cannot be read, and with data parallelism, whose replicas step by themselves.
    """
    try:
        model = inspect(profile.model)
    except WorkbenchError:
        return None
    device = devices()[0]
    # One byte a second: the roofline is then the reciprocal of the bytes that are read for a token.
    found = fit(model, profile, replace(device, bandwidth_bytes_s=1.0))
    if not found.roofline_tok_s or profile.data_parallel > 1:
        return None
    return Reading(1 / found.roofline_tok_s, found.kv_bytes_per_token or 0, device.bandwidth_bytes_s)


def estimated(read: Reading | None, steps_per_s: float | None, held_tokens: float | None) -> float | None:
    """Bytes a second; None where the steps are not known."""
    if read is None or steps_per_s is None:
        return None
    return steps_per_s * (read.weights + read.per_token * (held_tokens or 0))


def now(read: Reading | None, run: EngineRun) -> float | None:
    """Bytes a second between the last two samples."""
    return estimated(read, run.rates.steps_per_s, _held(run.sample, run.sample.kv_usage if run.sample else None))


def over_time(read: Reading | None, run: EngineRun) -> Iterator[float | None]:
    """The share of the peak at each point of the run's series, newest first."""
    for steps, usage in zip(reversed(run.series.steps_per_s), reversed(run.series.kv_usage), strict=True):
        used = estimated(read, steps, _held(run.sample, usage))
        yield used / read.peak if read and read.peak and used is not None else None


def _held(sample: EngineSample | None, usage: float | None) -> float | None:
    """Tokens in the blocks in use, the last block of each request taken as full."""
    return sample.kv_tokens * usage if sample and sample.kv_tokens and usage is not None else None
