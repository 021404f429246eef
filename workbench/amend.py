"""Changes of mind while a quantization runs: each is a line in the job folder, for the blocks not yet begun.

The worker reads the lines between two blocks. Old and new choices together are one recipe again, so that what was
made can be made once more by one command.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from workbench import jobs
from workbench import plan as plans
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.plan import Plan
from workbench.quant_events import ModuleDone, ModuleStarted
from workbench.recipe import Choice, Recipe

CALIBRATION = ("samples", "length", "calibration_file", "seed", "targets")


@dataclass(frozen=True, slots=True)
class Amendment:
    """`recipe` from block `from_block` on."""

    from_block: int
    recipe: Recipe


def amend(job: Path, recipe: Recipe) -> Plan:
    """Ask the running job in `job` to go on by `recipe`; the plan of all blocks, made and to be made.

    A plan with conflicts is not handed over. Raises WorkbenchError when the job cannot take the change.
    """
    state = next((entry.state for entry in jobs.listing() if entry.folder.resolve() == job.resolve()), "")
    if state not in ("running", "interrupted"):
        raise WorkbenchError("The job has ended; its recipe cannot change.", "Start another run with the new recipe.")
    plan = current(job)
    first = begun(job)
    if first >= (plan.model.layers or 0):
        raise WorkbenchError("Every block has been begun already.", "Start another run with the new recipe.")
    amended = combined(plan, recipe, first)
    if not amended.blocks:
        line = {"from_block": first, "recipe": recipes.to_dict(recipe)}
        with (job / "amendments.jsonl").open("a", encoding="utf-8") as lines:
            print(json.dumps(line, ensure_ascii=False), file=lines)
    return amended


def current(job: Path) -> Plan:
    """The job's plan with the amendments up to now."""
    spec = jobs.spec_of(job)
    try:
        model, recipe = Path(spec["model"]), spec["recipe"]
    except (KeyError, TypeError) as error:
        raise jobs.damaged(job) from error
    plan = plans.make(catalog.inspect(model), recipes.from_dict(recipe))
    for amendment in read(job):
        plan = combined(plan, amendment.recipe, amendment.from_block)
    return plan


def begun(job: Path) -> int:
    """How many blocks have been begun."""
    blocks = [event.block for event in jobs.replay(job) if isinstance(event, ModuleStarted | ModuleDone)]
    return max(blocks, default=-1) + 1


def read(job: Path) -> Iterator[Amendment]:
    """The amendments in their order. A last line that is still being written is left for later."""
    try:
        text = (job / "amendments.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.split("\n")[:-1]:  # not splitlines(): a name may hold Unicode's other line ends
        if line.strip():
            fields = json.loads(line)
            yield Amendment(int(fields["from_block"]), recipes.from_dict(fields["recipe"]))


def combined(plan: Plan, recipe: Recipe, from_block: int) -> Plan:
    """`plan` for the blocks before `from_block` and `recipe` from there on, as the plan of one recipe."""
    for name in CALIBRATION:
        if getattr(recipe, name) != getattr(plan.recipe, name):
            raise WorkbenchError(
                "The calibration cannot change while the job runs.", "Change methods, bits, groups and the like only."
            )
    wanted = plans.make(plan.model, recipe)
    if not _calibrated(plan) and _calibrated(wanted):
        raise WorkbenchError(
            "This job rounds plainly and has read no calibration text.", "Start another run with the new recipe."
        )
    new = {planned.linear.name: planned.choice for planned in wanted.linears}
    pinned: dict[Choice, list[str]] = defaultdict(list)
    for planned in plan.linears:
        name = planned.linear.name
        if planned.linear.block < from_block and planned.choice != new[name]:
            pinned[planned.choice].append(name)
    for choice, names in pinned.items():
        recipe = recipes.with_rules(recipe, tuple(names), choice)
    return plans.make(plan.model, replace(recipe, name=recipe.name or plan.recipe.name))


def _calibrated(plan: Plan) -> bool:
    return any(planned.choice.method != "rtn" for planned in plan.quantized)
