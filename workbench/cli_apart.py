"""`lathe serve --separate` and `--prefill-url`: prefill and decode apart, shown, run, or measured beside one engine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import cli_ledger, settings, terminal
from workbench.admission import Ask
from workbench.cli_engine import servable
from workbench.engine import separation as separations
from workbench.engine.profile import Profile
from workbench.engine.separation import Leg, Separation, label
from workbench.engine_events import EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed, LegEvent
from workbench.interrupt import run_until_done
from workbench.words import Sentence, say

Separate = Annotated[
    str,
    typer.Option(metavar="NxM", help="N engines read prompts, M write the answers, such as 1x1, behind vLLM's router."),
]
PrefillUrl = Annotated[
    list[str] | None, typer.Option(metavar="URL", help="A running engine that reads prompts; repeatable.")
]
DecodeUrl = Annotated[
    list[str] | None, typer.Option(metavar="URL", help="A running engine that writes answers; repeatable.")
]
Devices = Annotated[
    list[str] | None,
    typer.Option(metavar="GPUS", help="GPUs of each such engine, such as 0,1; once for each, else all share them out."),
]
Width = Annotated[int | None, typer.Option(help="GPUs to split each layer of such an engine over.")]
LegKey = Annotated[str, typer.Option("--key", envvar="LATHE_KEY", help="The key of the engines at these URLs.")]
Measure = Annotated[
    bool, typer.Option("--measure", help="Measure a mixed load in one engine and apart, print both, and end.")
]
Json = Annotated[bool, typer.Option("--json", help="With --measure: one JSON document on stdout, for programs.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of prefill and decode apart."""

    shape: str = ""
    urls: tuple[Sequence[str], Sequence[str]] = ((), ())
    devices: tuple[Sequence[str], Sequence[str]] = ((), ())
    widths: tuple[int | None, int | None] = (None, None)
    key: str = ""

    def __bool__(self) -> bool:
        return bool(self.shape or any(self.urls))


def serve(
    separation: Separation,
    show: bool,
    measured: bool,
    as_json: bool,
    figures_file: Path | None,
    ask: Ask,
    unload_idle: float | None,
) -> None:
    """What `lathe serve` does with these: print the commands, measure, or serve until Ctrl+C."""
    if show:
        _show(separation)
    elif measured:
        _measure(separation, as_json)
    else:
        name = separation.profile.model.name if separation.profile else "apart"
        _run(separation, name, figures_file, ask, unload_idle)


def separation_of(asked: Asked, profile: Profile | None, port: int) -> Separation:
    """The legs that were asked for; `profile` is None where only URLs were given."""
    if any(asked.urls):
        if asked.shape:
            raise WorkbenchError("Engines at URLs run already.", "Leave out --separate or the URLs.")
        return separations.of_urls(*map(tuple, asked.urls), asked.key, port)
    if not (shape := re.fullmatch(r"([1-9]\d?)x([1-9]\d?)", asked.shape)):
        raise WorkbenchError("{shape} is no number of engines.", "Write it as 1x1 or 2x1.", shape=asked.shape)
    return _parted(separations.of_profile(replace(profile, port=port), *map(int, shape.groups())), asked)


def changed(kept: Separation, asked: Asked, model: Path | None, given: Mapping[str, Any]) -> Separation:
    """A kept separation with another model, or with what was `given` in place of what its engines have."""
    options = {name: value for name, value in given.items() if name != "port"}
    if (model or options) and kept.profile is None:
        raise WorkbenchError("Engines at URLs run already.", "Leave out the model and what it is served with.")

    def change(leg: Leg) -> Leg:
        if leg.profile is None:
            return leg
        profile = replace(leg.profile, **options)
        return replace(leg, profile=replace(profile, model=servable(model or profile.model)))

    made = replace(
        kept, prefill=tuple(map(change, kept.prefill)), decode=tuple(map(change, kept.decode)),
        port=given.get("port", kept.port), key=asked.key or kept.key,
    )  # fmt: skip
    return _parted(made, asked)


def _parted(made: Separation, asked: Asked) -> Separation:
    """With the GPUs and widths that were asked for, where any were."""
    changed = {}
    for role, devices, width in zip(("prefill", "decode"), asked.devices, asked.widths, strict=True):
        legs = getattr(made, role)
        if not devices and width is None:
            continue
        if len(devices) not in (0, 1, len(legs)):
            raise WorkbenchError(
                "{given} lists of GPUs do not fit {engines} engines.", "Give one, or one for each.",
                given=len(devices), engines=len(legs),
            )  # fmt: skip
        if any(leg.profile is None for leg in legs):
            raise WorkbenchError("Engines at URLs run already.", "Leave out the GPUs and how they are split.")
        if width is not None:
            legs = [replace(leg, profile=replace(leg.profile, tensor_parallel=width)) for leg in legs]
        parts = [separations.read_devices(gpus) for gpus in devices] or [leg.devices for leg in legs]
        if len(devices) == 1:
            parts = separations.spread(parts[0], len(legs), legs[0].profile.devices)
        changed[role] = tuple(replace(leg, devices=part) for leg, part in zip(legs, parts, strict=True))
    return replace(made, **changed)


def _show(separation: Separation) -> None:
    """Every command of a start, each under the name of its engine."""
    from workbench.engine import command, facts, handover

    known = run_until_done(facts.ask(settings.load().interpreter))
    for name, built in handover.shown(separation, known).items():
        print(f"# {say('router') if name == handover.FRONT else label(name)}\n{command.shown(built)}")


def _run(separation: Separation, name: str, figures_file: Path | None, ask: Ask, unload_idle: float | None) -> None:
    """Serve until Ctrl+C; on stdout the front's address, and the key for its list of models."""
    from workbench.catalog.devices import devices
    from workbench.engine import apart, handed
    from workbench.engine.recording import recorded
    from workbench.engine.served import log_file

    for sentence in separations.remarks(separation, devices()):
        terminal.err.print(f"· {sentence}", markup=False, soft_wrap=True)

    async def work() -> None:
        unloading = cli_ledger.Unloading(unload_idle)
        async with recorded(name, figures_file) as run:
            with terminal.JobProgress() as progress:
                tell = _telling(progress)

                def take(event: Event) -> None:
                    tell(event)
                    run.apply(event)
                    unloading.take(event)
                    if isinstance(event, EngineReady):
                        progress.stop()
                        print(f"{event.url}/v1\n{say('key: {key}', key=event.key)}", flush=True)

                try:
                    serving = apart.serve_separated(separation, settings.load(), take, log_file(name), ask)
                    if unloaded := await unloading.run(name, serving):
                        progress(unloaded)
                finally:
                    if told := handed.told(run):
                        terminal.err.print(str(told), markup=False)

    run_until_done(work())


def _measure(separation: Separation, as_json: bool) -> None:
    """The mixed load both ways, as a table or for programs."""
    from workbench.catalog.devices import devices
    from workbench.measure import mixed_load

    mixed_load.one_engine(separation)  # so that what cannot be compared is said at once
    mix = mixed_load.Mix()
    terminal.err.print(str(mix.sentence), markup=False, soft_wrap=True)
    with terminal.JobProgress() as progress:
        tell = _telling(progress)
        found = run_until_done(
            mixed_load.compare_separated(separation, mix, settings.load(), lambda side, event: tell(event))
        )
    if as_json:
        rows = {row.name: {"one": row.one, "apart": row.apart, "speedup": row.speedup} for row in found.rows()}
        terminal.print_json(rows)
        return
    headings = (say("Mixed load"), say("one engine"), say("apart"), say("speed-up"))
    terminal.table(headings, ((row.label, *row.texts) for row in found.rows()))
    terminal.out.print(str(found.verdict), markup=False, soft_wrap=True)
    for sentence in separations.remarks(separation, devices()):
        terminal.out.print(f"· {sentence}", markup=False, soft_wrap=True)


def _telling(progress: terminal.JobProgress):
    """Shows the events of a front and of its legs; a leg's own address is not for users."""

    def tell(event: Event) -> None:
        if not isinstance(event, LegEvent):
            progress(event)
            return
        match event.event:
            case EngineReady(_, _, _, _, seconds):
                values = {"leg": label(event.leg), "seconds": round(seconds)}
                told = Sentence("The {leg} is ready after {seconds} s.", values)
                terminal.err.print(f"  {told}", markup=False)
            case Failed():  # the front says it too
                pass
            case other:
                progress(other)

    return tell
