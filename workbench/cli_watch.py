"""`lathe watch`: the figures of a running server, a line a second."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from workbench import figures, keys, terminal
from workbench.cli_engine import connected
from workbench.engine import monitor, remote
from workbench.engine.recording import recorded
from workbench.engine_events import EngineConnected, EngineSample
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.interrupt import run_until_done
from workbench.runs import EngineRun
from workbench.words import say

Figures = Annotated[
    Path | None, typer.Option("--figures", metavar="FILE", help="At the end, write the figures there as CSV.")
]


def watch(
    target: Annotated[str, typer.Argument(metavar="URL|NAME", help="A server's address, or a name that is kept.")],
    figures_file: Figures = None,
    seconds: Annotated[float | None, typer.Option(help="How long; else until Ctrl+C.")] = None,
    variable: Annotated[
        str, typer.Option("--key-from-env", metavar="NAME", help="The environment variable that holds its key.")
    ] = "",
) -> None:
    """Print what a running vLLM does, once a second."""
    endpoint = connected(target, keys.from_environment(variable) if variable else "", "")
    if endpoint is None:
        raise WorkbenchError(
            "There is no connection called {name}.", "`lathe connections` lists yours.", name=target
        )  # fmt: skip

    async def work() -> None:
        async with recorded(target, figures_file, here=False) as run:
            watching: asyncio.Task | None = None

            def take(event: Event) -> None:
                nonlocal watching
                run.apply(event)
                if isinstance(event, EngineConnected):
                    if not event.has_metrics:
                        raise WorkbenchError(
                            "{url} shows no figures.", "Only vLLM's servers have a page of them.", url=event.url
                        )
                    watching = asyncio.ensure_future(monitor.watch(remote.endpoint_of(event), take))
                elif isinstance(event, EngineSample):
                    terminal.out.print(line(run), markup=False, highlight=False, soft_wrap=True)

            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await remote.attend(endpoint, take)
            finally:
                if watching:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)

    run_until_done(work())


def line(run: EngineRun) -> str:
    """What the engine did since the last sample, in a line."""
    return say(
        "running {running} · waiting {waiting} · KV cache {usage} · {speed} tok/s · prefill {prefill} tok/s · "
        "accepted {acceptance} · preempted {preempted}",
        running=figures.count(run.sample.running),
        waiting=figures.count(run.sample.waiting),
        usage=figures.percent(run.sample.kv_usage),
        speed=figures.number(run.rates.tokens_per_s),
        prefill=figures.number(run.rates.prompt_per_s),
        acceptance=figures.percent(run.rates.acceptance),
        preempted=figures.count(run.rates.preempted),
    )


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command()(watch)
