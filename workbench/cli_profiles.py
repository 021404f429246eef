"""`lathe profiles` and `lathe adapters`: what is kept for engines by name, and what a running one can be given."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench import settings, terminal
from workbench.cli_engine import Json, Key
from workbench.engine.lora import read_adapter
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.interrupt import run_until_done
from workbench.words import say


def profiles(
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Keep the profile in a file.")] = None,
    pasted: Annotated[
        str,
        typer.Option("--from-command", metavar="TEXT", help="Keep what a vLLM command of any year means; - reads it."),
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Keep it under this name.")] = "",
    overwrite: Annotated[bool, typer.Option("--replace", help="Also where the name is taken.")] = False,
    remove: Annotated[str, typer.Option("--remove", metavar="NAME", help="Forget a profile of yours.")] = "",
    as_json: Json = False,
) -> None:
    """List your profiles, keep one from a file or from a vLLM command, or forget one."""
    from workbench.engine import profiles_kept

    if save:
        _keep(profiles_kept.read(save), name or save.stem, overwrite)
    elif pasted:
        _keep_pasted(sys.stdin.read() if pasted == "-" else pasted, name, overwrite)
    elif remove:
        profiles_kept.remove(remove)
        terminal.out.print(say("{name} is removed.", name=remove))
    else:
        _list(as_json)


def _keep(chosen: Profile | Separation, name: str, overwrite: bool) -> None:
    from workbench.engine import profiles_kept

    path = profiles_kept.keep(chosen, name, overwrite)
    terminal.out.print(say("Kept as {name}: {path}", name=path.stem, path=str(path)))


def _keep_pasted(text: str, name: str, overwrite: bool) -> None:
    from workbench.engine import facts
    from workbench.engine.old_flags import translate

    known = run_until_done(facts.ask(settings.load().interpreter))
    found = translate(text, known)
    for _, sentence in found.notes:
        terminal.out.print(f"· {sentence}", markup=False)
    _keep(found.profile, name or found.profile.served_name, overwrite)


def adapters(
    url: Annotated[str, typer.Argument(help="The URL of a running engine.")],
    load: Annotated[list[str] | None, typer.Option(metavar="NAME=FOLDER", help="Load one; repeatable.")] = None,
    unload: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Drop one; repeatable.")] = None,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Load or drop LoRA adapters of a running engine, and list its models."""
    from workbench.engine import adapters as running
    from workbench.engine.client import models
    from workbench.engine.endpoint import Endpoint

    async def work() -> list[str]:
        endpoint = Endpoint(url, key)
        for name in unload or ():
            await running.unload(endpoint, name)
        for text in load or ():
            await running.load(endpoint, read_adapter(text))
        return await models(endpoint)

    names = run_until_done(work())
    if as_json:
        terminal.print_json(names)
    else:
        for name in names:
            terminal.out.print(name, markup=False)


def _list(as_json: bool) -> None:
    from workbench.engine import profiles_kept

    own = profiles_kept.listing()
    if as_json:
        terminal.print_json(
            [{"profile_name": kept.name, **profiles_kept.to_dict(kept.chosen)} for kept in own if kept.chosen]
        )
        return
    rows = [(kept.name, *_told(kept.chosen)) for kept in own if kept.chosen]
    terminal.table((say("Name"), say("Model"), say("Speculation"), say("Engines")), rows)
    for kept in own:
        if kept.error:
            terminal.print_error(kept.error)


def _told(chosen: Profile | Separation) -> tuple[str, str, str]:
    """Model, speculation and engines of a kept profile."""
    apart = isinstance(chosen, Separation)
    profile = chosen.profile if apart else chosen
    drafting = profile.speculation if profile else None
    return (
        str(profile.model) if profile else chosen.decode[0].url,
        drafting.method if drafting else "–",
        chosen.shape if apart else "1",
    )


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command()(profiles)
    app.command()(adapters)
