"""Puts one prompt to one or two engines, one after the other or both at once."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from workbench.chat.conversation import Turn
from workbench.engine import client
from workbench.engine.endpoint import Endpoint
from workbench.engine.sampling import Sampling
from workbench.events import Event, ReplyDone, ReplyFailed


async def ask(
    turn: Turn,
    asked: dict[str, list[dict[str, str]]],
    endpoint: Callable[[str], Endpoint | None],
    sampling: Sampling,
    on_event: Callable[[str, Event], None],
    priorities: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Send each side of `asked` its messages; `on_event(side, event)` has to fold into the turn's replies.

    `priorities` are of the sides whose engines schedule by them.
    Every reply is ended when this returns, however it returns: cancelling also ends those whose turn never came.
    """

    async def one(side: str) -> None:
        if (found := endpoint(side)) is None:
            on_event(side, ReplyFailed("This engine has ended.", "Start it again, then send again."))
            return
        await client.chat(found, asked[side], sampling, lambda event: on_event(side, event), priorities.get(side))

    try:
        if turn.together:
            await asyncio.gather(*(one(side) for side in asked))
        else:
            for side in asked:
                await one(side)
    finally:
        for side in asked:
            if turn.replies[side].is_open:
                on_event(side, ReplyDone("stopped", None, None, 0.0, None, None, None))
