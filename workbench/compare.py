"""The same prompts to an original and its quantized model, each reply timed alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from workbench.engine import client
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Profile
from workbench.engine.sampling import Sampling
from workbench.engine.served import served, with_both
from workbench.events import Event
from workbench.measure.timing import Difference, first_difference
from workbench.runs import EngineRun, Reply
from workbench.settings import Settings
from workbench.words import Sentence

SIDES = ("original", "quantized")


@dataclass(slots=True)
class Comparison:
    """Replies by side in the order of the prompts, and what each engine was and did meanwhile."""

    prompts: Sequence[str]
    sampling: Sampling
    replies: dict[str, list[Reply]] = field(default_factory=lambda: {side: [] for side in SIDES})
    engines: dict[str, EngineRun] = field(default_factory=lambda: {side: EngineRun() for side in SIDES})
    note: Sentence | None = None

    def difference(self, index: int) -> Difference | None:
        """Where both answers to a prompt part; None when they hold the same words."""
        return first_difference(*(self.replies[side][index].text for side in SIDES))


async def compare(
    targets: Mapping[str, Profile | Endpoint],
    prompts: Sequence[str],
    sampling: Sampling,
    settings: Settings,
    on_event: Callable[[str, Event], None],
) -> Comparison:
    """Ask each every prompt with the same settings, one side after the other. Profiles are served for it."""
    made = Comparison(prompts, sampling)

    def take(side: str, event: Event) -> None:
        made.engines[side].apply(event)
        on_event(side, event)

    async def work(side: str, endpoint: Endpoint) -> None:
        for prompt in prompts:
            reply = await ask(endpoint, prompt, sampling, lambda event: on_event(side, event))
            made.replies[side].append(reply)

    profiles = {side: target for side, target in targets.items() if isinstance(target, Profile)}
    if len(profiles) == len(targets):
        made.note = await with_both(profiles, settings, take, work)
        return made
    made.note = Sentence("One is asked after the other.")
    for side, target in targets.items():
        if side in profiles:
            async with served(target, settings, partial(take, side), side) as endpoint:
                await work(side, endpoint)
        else:
            await work(side, target)
    return made


async def ask(
    endpoint: Endpoint,
    prompt: str,
    sampling: Sampling,
    on_event: Callable[[Event], None],
    priority: int | None = None,
) -> Reply:
    """One prompt without history; the reply with its figures. `priority` as in `client.chat`."""
    reply = Reply(model=endpoint.model)

    def take(event: Event) -> None:
        reply.apply(event)
        on_event(event)

    await client.chat(endpoint, [{"role": "user", "content": prompt}], sampling, take, priority)
    return reply


def describe(reply: Reply) -> dict[str, Any]:
    """A reply as plain values."""
    return {
        "model": reply.model,
        "state": reply.state,
        "text": reply.text,
        "figures": asdict(reply.done) if reply.done else None,
        "error": asdict(reply.error) if reply.error else None,
    }
