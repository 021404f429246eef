"""The phases of an engine's start: how its output tells them apart, how long each took and will take."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench import figures
from workbench.engine_events import EnginePhase, EngineReady
from workbench.runs import EngineRun
from workbench.words import Sentence

NAMES = {
    "starting": Sentence("Starting"),
    "weights": Sentence("Weights"),
    "compile": Sentence("Compiling"),
    "kv": Sentence("KV cache"),
    "graphs": Sentence("CUDA graphs"),
    "warmup": Sentence("Warm-up"),
}

# What vLLM prints when it enters a phase, in the order of the phases.
ENTRIES = (
    ("weights", re.compile(r"Starting to load model|Loading model from scratch|Loading safetensors checkpoint shards")),
    ("compile", re.compile(r"Using cache directory: .* for vLLM's torch\.compile|Dynamo bytecode transform time")),
    ("kv", re.compile(r"GiB for KV cache on node|Available KV cache memory|KV cache size: ")),
    ("graphs", re.compile(r"Capturing CUDA graphs")),
)


class Course:
    """Follows a start through its output; phases only go forward."""

    def __init__(self) -> None:
        self._ahead = list(ENTRIES)

    def entered(self, line: str) -> str | None:
        """The phase that this line of the output begins."""
        for index, (name, pattern) in enumerate(self._ahead):
            if pattern.search(line):
                del self._ahead[: index + 1]
                return name
        return None


QUIET_S = 5.0  # shorter silences are no news


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a start: its seconds so far, None before it began; what earlier starts make one expect of it."""

    name: str
    seconds: float | None
    running: bool = False
    expected_s: float | None = None


def durations(phases: Sequence[EnginePhase], ready: EngineReady) -> dict[str, float]:
    """The seconds of each phase of a finished start; a warm-up that failed has none."""
    found = {phase.name: following.at_s - phase.at_s for phase, following in pairwise(phases)}
    return found | ({phases[-1].name: ready.warmup_s} if phases and ready.warmup_s is not None else {})


def phases(run: EngineRun, until_s: float) -> list[Phase]:
    """The phases of `run` up to `until_s` on the clock of its events; a finished start ends with its warm-up.

    While it starts, the phases that earlier starts had are listed before they begin.
    """
    expected = run.expected
    found = []
    for index, phase in enumerate(run.phases):
        last = index == len(run.phases) - 1
        if not last:
            end_s = run.phases[index + 1].at_s
        elif run.ready:
            end_s = phase.at_s + (run.ready.warmup_s or 0.0)
        else:
            end_s = until_s
        running = last and run.state == "starting"
        found.append(Phase(phase.name, max(0.0, end_s - phase.at_s), running, expected.get(phase.name)))
    if run.state == "starting" and found:
        order = list(NAMES)
        ahead = order[order.index(found[-1].name) + 1 :]
        found += [Phase(name, None, expected_s=expected[name]) for name in ahead if name in expected]
    return found


def left_s(run: EngineRun, until_s: float) -> float | None:
    """The seconds that the start will still take by earlier ones, 0 when it takes longer; None without earlier ones."""
    if not run.expected:
        return None
    unfinished = [each for each in phases(run, until_s) if each.running or each.seconds is None]
    return sum(max(0.0, (each.expected_s or 0.0) - (each.seconds or 0.0)) for each in unfinished)


def outlook(run: EngineRun, now_s: float, silent_s: float) -> Sentence | None:
    """What to say of a start that goes on; nothing at its beginning where no earlier one is known."""
    left = left_s(run, now_s)
    if left is None and silent_s < QUIET_S:
        return None
    if left is None or (not left and silent_s >= QUIET_S):
        return Sentence("Still loading, no output for {seconds} s.", {"seconds": int(silent_s)})
    if left:
        return Sentence("About {seconds} s left, by earlier starts.", {"seconds": figures.count(left)})
    whole = figures.count(sum(run.expected.values()))
    return Sentence("It takes longer than earlier starts, which took {seconds} s.", {"seconds": whole})


def readiness(ready: EngineReady) -> Sentence:
    """Both times of a finished start."""
    told = {"seconds": figures.seconds(ready.seconds), "warm": figures.seconds(ready.warm_s)}
    if ready.warm_s is None:
        return Sentence("Ready after {seconds} s.", told)
    return Sentence("Ready after {seconds} s, warmed up after {warm} s.", told)
