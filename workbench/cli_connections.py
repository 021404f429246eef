"""`lathe connect` and `lathe connections`: servers that somebody else runs."""

from dataclasses import replace
from typing import Annotated

import typer

from workbench import figures, keys, terminal
from workbench.cli_engine import Json, connected
from workbench.engine import connections, remote
from workbench.engine.connections import Connection
from workbench.engine.monitor import sampled
from workbench.engine_events import EngineConnected, EngineSample
from workbench.errors import WorkbenchError
from workbench.interrupt import run_until_done
from workbench.words import say


def connect(
    target: Annotated[str, typer.Argument(metavar="URL|NAME", help="A server's address, or a name that is kept.")],
    name: Annotated[str, typer.Option("--name", help="Keep it under this name, its key in the system's keyring.")] = "",
    variable: Annotated[
        str, typer.Option("--key-from-env", metavar="NAME", help="The environment variable that holds its key.")
    ] = "",
    model: Annotated[str, typer.Option(help="Of its models; else its first.")] = "",
    as_json: Json = False,
) -> None:
    """Say what answers at an address: its models, whether it is vLLM, and its figures now."""
    given = keys.from_environment(variable) if variable else ""
    endpoint = connected(target, given, model)
    if endpoint is None:
        raise WorkbenchError(
            "There is no connection called {name}.", "Yours are: {names}.",
            name=target, names=", ".join(each.name for each in connections.listing()) or "–",
        )  # fmt: skip

    if given:
        endpoint = replace(endpoint, key=given)  # also where another one is kept, which may be out of use

    async def work() -> tuple[EngineConnected, EngineSample | None]:
        found = await remote.probe(endpoint)
        if not found.has_metrics:
            return found, None
        async with endpoint.open(timeout=5) as http:
            return found, await sampled(http)

    if note := remote.warning(endpoint):
        terminal.err.print(str(note), markup=False)
    found, sample = run_until_done(work())
    if name:
        kept = connections.keep(Connection(name, found.url, model))
        saved = keys.save(kept.name, found.key)
        if saved.note:
            terminal.err.print(str(saved.note), markup=False)
    if as_json:
        terminal.print_json(
            {
                "url": found.url, "model": found.model, "models": found.models, "vllm": found.version is not None,
                "version": found.version or None, "metrics": found.has_metrics, "context": found.context,
                "running": sample and sample.running, "waiting": sample and sample.waiting,
                "kv_usage": sample and sample.kv_usage,
            }
        )  # fmt: skip
        return
    _print(found, sample)
    if name:
        terminal.out.print(say("Kept as {name}: {path}", name=kept.name, path=str(connections.file_of(kept.name))))


def _print(found: EngineConnected, sample: EngineSample | None) -> None:
    terminal.out.print(str(remote.description(found)), markup=False)
    for each in found.models:
        terminal.out.print(f"{'→' if each == found.model else ' '} {each}", markup=False)
    values = {
        "running": figures.count(sample.running) if sample else figures.DASH,
        "waiting": figures.count(sample.waiting) if sample else figures.DASH,
        "usage": figures.percent(sample.kv_usage) if sample else figures.DASH,
    }
    terminal.out.print(say("Running {running}, waiting {waiting}, KV cache {usage}", **values), markup=False)


def list_connections(
    remove: Annotated[str, typer.Option("--remove", metavar="NAME", help="Forget one, and its key.")] = "",
    as_json: Json = False,
) -> None:
    """List the servers that are kept by name, or forget one."""
    if remove:
        connections.remove(remove)
        terminal.out.print(say("{name} is removed.", name=remove), markup=False)
        return
    kept = connections.listing()
    if as_json:
        terminal.print_json([{"name": each.name, "url": each.url, "model": each.model} for each in kept])
        return
    terminal.table(
        (say("Name"), say("Address"), say("Model")),
        [(each.name, each.url, each.model or figures.DASH) for each in kept],
    )


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command()(connect)
    app.command("connections")(list_connections)
