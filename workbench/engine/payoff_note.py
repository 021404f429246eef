"""Tells once that drafting makes an engine slower, from the engine's own events."""

from collections.abc import Callable

from workbench.catalog.devices import devices
from workbench.catalog.folder import inspect
from workbench.engine import drafts, payoff
from workbench.engine.profile import Profile
from workbench.engine_events import EngineReady, EngineSample
from workbench.errors import WorkbenchError
from workbench.events import Event, Note
from workbench.runs import EngineRun


class PayoffNote:
    """Passes every event of one engine on, and adds the note when its counters leave no other possibility."""

    def __init__(self, profile: Profile, on_event: Callable[[Event], None]):
        self._profile, self._on_event = profile, on_event
        self._run = EngineRun()
        self._cost = 0.0
        self._told = profile.speculation is None

    def __call__(self, event: Event) -> None:
        self._on_event(event)
        if self._told:
            return
        self._run.apply(event)
        if isinstance(event, EngineReady):
            self._cost = _cost(self._profile)
        elif isinstance(event, EngineSample) and (loss := payoff.loss(self._run.sample, self._cost)):
            self._told = True
            self._on_event(Note(loss.template, loss.values, "warning"))


def _cost(profile: Profile) -> float:
    """Of a drafted token in steps of the target; 0 where no other model drafts."""
    chosen = profile.speculation
    if chosen is None or chosen.draft is None:
        return 0.0
    try:
        judged = drafts.judge(inspect(profile.model), inspect(chosen.draft), profile, devices()[0])
    except WorkbenchError:  # a folder went away meanwhile, which must not end the engine that has read it
        return 0.0
    return judged.cost or 0.0
