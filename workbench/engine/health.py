"""Whether an engine's server answers, and whether there is still an engine behind it."""

import asyncio

import httpx

PERIOD_S = 1.0


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.HTTPError:
        return False


async def death(client: httpx.AsyncClient) -> bool:
    """Until the server says twice in a row that its engine is dead, or nobody listens; whether it still answers.

    vLLM's server outlives its engine core by some seconds, and a worker outlives both for longer (seen: 3 and 17 s).
    """
    seen = 0
    while seen < 2:
        await asyncio.sleep(PERIOD_S)
        try:
            dead = there = (await client.get("/health")).status_code == 503
        except httpx.ConnectError:
            dead, there = True, False
        except httpx.HTTPError:  # busy
            dead = there = False
        seen = seen + 1 if dead else 0
    return there
