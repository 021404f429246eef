"""How long each phase of an engine's start took."""

from dataclasses import dataclass

from workbench.runs import EngineRun


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a start: its name, its seconds so far, and whether it still runs."""

    name: str
    seconds: float
    running: bool


def phases(run: EngineRun, until_s: float) -> list[Phase]:
    """The phases of `run` up to `until_s` on the clock of its events; a finished start ends with its warm-up."""
    found = []
    for index, phase in enumerate(run.phases):
        last = index == len(run.phases) - 1
        if not last:
            end_s = run.phases[index + 1].at_s
        elif run.ready:
            end_s = phase.at_s + (run.ready.warmup_s or 0.0)
        else:
            end_s = until_s
        found.append(Phase(phase.name, max(0.0, end_s - phase.at_s), last and run.state == "starting"))
    return found
