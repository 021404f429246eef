"""The commands that look ahead: whatif, sensitivity, and the mix under a target that `plan` shows."""

import re
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import figures, jobs, moments_kept, named_files, sensitivities, settings, terminal, whatif
from workbench.catalog import folder as models
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.events import Event, Finished
from workbench.interrupt import run_until_done
from workbench.plan import Plan
from workbench.quant_events import SensitivityMeasured, WhatIf
from workbench.recipe import AUTO, Choice, Recipe
from workbench.words import say

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
Folder = Annotated[Path, typer.Argument(help="A model folder with config.json and safetensors.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="A preset, your own recipe, or a recipe file.")]
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def what_if(
    folder: Folder,
    module: Annotated[str, typer.Argument(help="The full name of a linear layer, as `lathe plan --every` lists it.")],
    method: Annotated[str, typer.Option(help="rtn, awq, gptq, awq+gptq or keep.")] = "gptq",
    bits: Annotated[int, typer.Option(help="2, 3, 4 or 8.")] = 4,
    group: Annotated[int, typer.Option(help="32, 64, 128, -1 for the whole row, 0 for what the recipe takes.")] = AUTO,
    symmetric: Annotated[bool, typer.Option("--symmetric/--asymmetric", help="Zero in the middle of the grid.")] = True,
    order: Annotated[str, typer.Option(help="static or none.")] = "static",
    damping: Annotated[float, typer.Option(help="GPTQ's damping, a share of the mean diagonal.")] = 0.01,
    clip: Annotated[bool, typer.Option(help="Search each group's range.")] = True,
    scale: Annotated[bool, typer.Option(help="Search AWQ's scale of the input channels.")] = True,
    refine: Annotated[bool, typer.Option(help="Refine what GPTQ found.")] = False,
    recipe: RecipeName = "layered",
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the recipe with this choice for the layer to a file.")
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--all-blocks", help="Save it for the layer's like in all blocks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What a choice would do to one linear layer, measured on the calibration statistics."""
    from workbench import recipe as recipes

    choice = Choice(
        method=method,
        bits=bits,
        group_size=group,
        symmetric=symmetric,
        order=order,
        damping=damping,
        clip=clip,
        scale=scale,
        refine=refine,
    )
    chosen, model = recipes.load(recipe), models.inspect(folder)
    _require(module, model)
    if save:
        named_files.require(save)  # gathering the statistics may take minutes
    if not moments_kept.gathered(folder.resolve(), chosen):
        _run("statistics", whatif.spec(folder, chosen))
    answer = _answer(folder, chosen, module, choice)
    if as_json:
        terminal.print_json(asdict(answer))
    else:
        print_answer(answer)
    if save:
        _save(chosen, model, module, choice, everywhere, save)


def _require(module: str, model: Model) -> None:
    """Raise when the model has no such layer, with the name that was probably meant."""
    names = [linear.name for linear in model.linears]
    if module not in names:
        near = next((name for name in names if name.endswith(module)), None) or next(
            iter(get_close_matches(module, names, 1, 0.4)), "–"
        )
        raise WorkbenchError(
            "There is no linear layer called {module} in this model.",
            "Did you mean {near}? `lathe plan --every` lists all.",
            module=module, near=near,
        )  # fmt: skip


def _save(recipe: Recipe, model: Model, module: str, choice: Choice, everywhere: bool, file: Path) -> None:
    from workbench import matching, reach, recipes_kept

    patterns = reach.patterns(model.linears, module, everywhere)
    names = [linear.name for linear in model.linears]
    recipes_kept.write(matching.place(recipe, patterns, choice, names), file)
    terminal.err.print(say("Written to {path}.", path=str(file)))


def fixed(made: Plan, number: int, output: Path | None) -> Plan:
    """The plan after taking one of the ways out that it lists, counted from 1."""
    from workbench import plan as plans

    if not 1 <= number <= len(made.fixes):
        raise WorkbenchError("The plan has no way out numbered {number}.", "`lathe plan` lists them.", number=number)
    fix = made.fixes[number - 1]
    return plans.make(made.model, fix.recipe, fix.output or output)


def print_answer(answer: WhatIf) -> None:
    """The figures of a what-if in a table."""
    rows = [
        (say("Choice"), f"{answer.method}, {answer.bits} bit, {say('group')} {answer.group_size}"),
        (say("Shape"), f"{answer.shape[0]} × {answer.shape[1]}"),
        (say("Size"), figures.bytes_of(answer.bytes)),
        (say("Output error"), figures.percent(answer.output_error, 3)),
        (say("Output error of plain rounding"), figures.percent(answer.plain_output_error, 3)),
        (say("Weight error"), figures.percent(answer.weight_error, 3)),
        (say("Clipped weights"), figures.percent(answer.clipped, 3)),
        (say("Kurtosis"), figures.number(answer.kurtosis)),
    ]
    if answer.scale_low is not None:
        rows.append((say("AWQ scale"), f"{figures.number(answer.scale_low)} – {figures.number(answer.scale_high)}"))
    if answer.damping is not None:
        rows.append((say("Damping used"), figures.number(answer.damping)))
    if answer.fallback:
        rows.append((say("Fallback"), answer.fallback))
    terminal.table((say("What if"), answer.module), rows)
    if answer.estimated:
        terminal.out.print(say("Only a part of this layer's statistics was kept: its output errors are estimates."))


def sensitivity(folder: Folder, recipe: RecipeName = "layered", as_json: Json = False) -> None:
    """How much each linear layer would cost at 2, 3, 4 and 8 bits: predicted KL in nats per token, plain rounding."""
    from workbench import recipe as recipes

    found = measured(folder, recipes.load(recipe))
    if as_json:
        terminal.print_json([asdict(event) for event in found])
        return
    terminal.table(
        (say("Layer"), say("Group"), *(say("{bits} bit, nat", bits=bits) for bits in (2, 3, 4, 8))),
        [
            (
                event.name, event.group_size,
                *(figures.number(event.damage.get(f"{bits}/{event.group_size}"), 2) for bits in (2, 3, 4, 8)),
            )
            for event in sorted(found, key=lambda event: -event.damage.get(f"4/{event.group_size}", 0.0))
        ],
    )  # fmt: skip


def mixed(made: Plan, bits: float | None, size: str | None, low: bool = False) -> Plan:
    """The plan with bits for each layer under the target, its figures said on the terminal; `low`: 2 and 3 bits too."""
    from workbench import allocation
    from workbench.allocation import Target

    if bits is not None and size is not None:
        raise WorkbenchError("A target is either bits or a size.", "Give --bits or --size, not both.")
    found = measured(made.model.folder, made.recipe)
    target = Target(bits, None if size is None else bytes_of(size), low)
    proposal = allocation.propose(made.model, made.recipe, found, target)
    terminal.err.print(
        say(
            "{bits} bits on average instead of {before}; predicted damage {damage} instead of {damage_before}.",
            bits=f"{proposal.bits:.3f}", before=f"{proposal.base_bits:.3f}",
            damage=figures.number(proposal.damage), damage_before=figures.number(proposal.base_damage),
        )
    )  # fmt: skip
    counts = ((say("{bits} bit", bits=bits), count) for bits, count in allocation.counts(proposal.plan).items())
    terminal.err.print(" · ".join(f"{name} × {count}" for name, count in counts))
    return proposal.plan


def measured(folder: Path, recipe: Recipe) -> list[SensitivityMeasured]:
    """The sensitivity scan; what is not kept of it is measured now."""
    kept = sensitivities.kept(models.inspect(folder), recipe)
    if not kept.missing:
        return list(kept.found.values())
    events = _run("sensitivity", whatif.spec(folder, recipe))
    return [event for event in events if isinstance(event, SensitivityMeasured)]


def bytes_of(size: str) -> int:
    """ "8GB", "8 GiB", "500MB" or a plain number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", size, re.IGNORECASE)
    unit = found[2].lower() if found else ""
    unit += "b" if unit and not unit.endswith("b") else ""
    if not found or unit not in _UNITS:
        raise WorkbenchError("{size} is not a size.", "Write it as 8GB, 500MB or a number of bytes.", size=size)
    return int(float(found[1]) * _UNITS[unit])


def _answer(folder: Path, recipe: Recipe, module: str, choice: Choice) -> WhatIf:
    with terminal.JobProgress() as progress:
        trials = whatif.Trials(folder, recipe, settings.load(), progress)
        trials.ask(module, choice)
        trials.close()
        run_until_done(trials.run())
    if refused := trials.refused.get(module):
        raise WorkbenchError(refused.message, refused.hint, **refused.values)
    return trials.answers[module]


def _run(kind: str, spec: dict[str, Any]) -> list[Event]:
    events: list[Event] = []
    folder = jobs.create(kind, spec)
    with terminal.JobProgress() as progress:

        def on_event(event: Event) -> None:
            events.append(event)
            if not isinstance(event, Finished):  # where it is kept is of no use to anybody
                progress(event)

        run_until_done(jobs.run(folder, on_event, settings.load()))
    return events


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("whatif")(what_if)
    app.command()(sensitivity)
