"""Who is compared: the grids, our recipes on them, and the same for the tools that Lathe replaces."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench import recipe
from workbench.recipe import PRESETS, Recipe, Rule

if TYPE_CHECKING:  # the tables are made without torch
    from workbench.quantization.calibration import Sequences

OURS, RTN, LLMCOMPRESSOR, AUTOAWQ = "Lathe", "RTN", "llm-compressor", "AutoAWQ"
BARE = ", no clip, o_proj plain"  # what llm-compressor does: it searches no clip and leaves o_proj unscaled here
RANGE_SEARCH = "memoryless_mse"  # their nearest to our clip search, which none of their presets asks for
METHODS = {  # attention, MLP, by the name that our preset has; those that take longest first
    "best": ("awq+gptq", "awq+gptq"),
    "awq": ("awq", "awq"),
    "layered": ("awq", "gptq"),
    "gptq": ("gptq", "gptq"),
}
SWAPPED = ", symmetry swapped"


@dataclass(frozen=True, slots=True)
class Grid:
    """Group size and symmetry of a model's two parts, always at 4 bits: what settles the stored bits."""

    name: str
    attention: tuple[int, bool]
    mlp: tuple[int, bool]

    @property
    def uniform(self) -> bool:
        return self.attention == self.mlp

    @property
    def swapped(self) -> "Grid":
        """The other part asymmetric: with few attention weights in finer groups that takes nearly the same bits."""
        (attention, attention_even), (mlp, mlp_even) = self.attention, self.mlp
        return Grid(self.name, (attention, mlp_even), (mlp, attention_even))


GRIDS = (
    Grid("attention 32 asymmetric, MLP 64 symmetric", (32, False), (64, True)),
    Grid("32 symmetric", (32, True), (32, True)),
    Grid("32 asymmetric", (32, False), (32, False)),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One quantization: by which tool, with which method, and how it is asked for in the child's JSON."""

    tool: str
    method: str
    grid: str
    seed: int
    spec: dict[str, Any]

    @property
    def who(self) -> str:
        return f"{self.tool} {self.method}"

    @property
    def searches_ranges(self) -> bool:
        return RANGE_SEARCH in self.method

    @property
    def name(self) -> str:
        return f"{self.who}, {self.grid}, seed {self.seed}"


def on_grid(chosen: Recipe, grid: Grid) -> Recipe:
    """The recipe with the grid's groups and symmetry."""
    (attention, attention_even), (mlp, mlp_even) = grid.attention, grid.mlp
    return replace(
        chosen,
        attention=replace(chosen.attention, group_size=attention, symmetric=attention_even),
        mlp=replace(chosen.mlp, group_size=mlp, symmetric=mlp_even),
    )


def plainer(chosen: Recipe, clip: bool, scale_values: bool) -> Recipe:
    """The recipe with less: without clip search, or with o_proj rounded plainly as the others do."""
    made = replace(
        chosen, attention=replace(chosen.attention, clip=clip), mlp=replace(chosen.mlp, clip=clip)
    )  # fmt: skip
    if scale_values:
        return made
    plain = replace(made.attention, method="rtn")
    return replace(made, rules=(*made.rules, Rule("*.o_proj", plain)))


def ours(method: str, grid: Grid, chosen: Recipe, **more: Any) -> Run:
    """`more` goes into the job's specification: device, threads, steps."""
    tool = RTN if method == "rtn" else OURS
    return Run(tool, method, grid.name, chosen.seed, {"recipe": recipe.to_dict(chosen)} | more)


def theirs(
    method: str,
    grid: Grid,
    seed: int,
    sequences: "Sequences",
    tool: str = LLMCOMPRESSOR,
    observer: str = "",
    **more: Any,
) -> Run:
    """The same token ids in the same batches. `observer` finds each group's range, where it is not the one that
    llm-compressor takes by itself. `more`: threads, steps, dtype, propagate_error."""
    parts = METHODS[method]
    spec = {
        "tool": tool.replace("-", "").lower(),
        "batches": [batch.tolist() for batch in sequences.batches()],
        "attention": {"method": parts[0], "weights": _weights(grid.attention, observer)},
        "mlp": {"method": parts[1], "weights": _weights(grid.mlp, observer)},
    }
    shown = "awq+gptq" if method == "best" else method
    return Run(tool, f"{shown}{f' {observer}' if observer else ''}", grid.name, seed, spec | more)


def quality_runs(
    grid: Grid, calibrated: Recipe, sequences: "Sequences", rivals: dict[str, Any] | None, threads: int
) -> Iterator[Run]:
    """What a table of quality compares, with one calibration: a recipe that names it, and the sequences that it
    stands for. Plain rounding has none, so that its run is the same for all. `rivals` is what theirs are given; without
    it there are none."""
    seed = calibrated.seed
    if rivals and grid.uniform and not grid.attention[1]:  # AutoAWQ knows one asymmetric grid for all
        yield theirs("awq", grid, seed, sequences, tool=AUTOAWQ, threads=threads, **rivals)
    for method in METHODS:
        chosen = calibrated_as(calibrated, PRESETS[method])
        yield ours(method, grid, on_grid(chosen, grid), threads=threads)
        if method == "best" and not grid.uniform:
            swapped = ours(method, grid, on_grid(chosen, grid.swapped), threads=threads)
            yield replace(swapped, method=f"{method}{SWAPPED}")
        if rivals:
            yield theirs(method, grid, seed, sequences, threads=threads, **rivals)
    yield ours("rtn", grid, on_grid(PRESETS["rtn"], grid), threads=threads)
    if rivals:
        yield theirs("best", grid, seed, sequences, observer=RANGE_SEARCH, threads=threads, **rivals)


def calibrated_as(other: Recipe, chosen: Recipe) -> Recipe:
    """`chosen` with the calibration of another recipe."""
    parts = ("samples", "length", "seed", "calibration_file")
    return replace(chosen, **{part: getattr(other, part) for part in parts})


def cost_runs(calibrated: Recipe, sequences: "Sequences", grid_points: tuple[int, ...], **more: Any) -> Iterator[Run]:
    """The rows for time and memory, on the first grid; a run's `grid` says what is special about it. What a row adds
    is shown at the fewest grid points."""
    layered, best = (on_grid(calibrated_as(calibrated, PRESETS[name]), GRIDS[0]) for name in ("layered", "best"))
    threads, few = more["threads"], min(grid_points)

    def mine(method: str, chosen: Recipe, steps: int, added: str) -> Run:
        run = ours(method, GRIDS[0], chosen, device="cpu", steps=steps, threads=threads)
        return replace(run, grid=f"{steps} grid points{added}")

    def other(method: str, steps: int, added: str = "", **given: Any) -> Run:
        run = theirs(method, GRIDS[0], calibrated.seed, sequences, steps=steps, **more, **given)
        return replace(run, grid=f"{steps} grid points{added}")

    for steps in grid_points:
        yield mine("layered", plainer(layered, clip=False, scale_values=False), steps, BARE)
        yield other("layered", steps)
    yield mine("layered", plainer(layered, clip=False, scale_values=True), few, ", v→o")
    yield mine("layered", plainer(layered, clip=True, scale_values=False), few, ", clip")
    yield mine("layered", layered, few, ", v→o and clip")
    yield mine("best", best, few, ", v→o and clip")
    yield other("layered", few, ", inputs not recomputed", propagate_error=False)
    yield other("gptq", few)
    yield other("best", few)


def _weights(part: tuple[int, bool], observer: str) -> dict[str, Any]:
    group_size, symmetric = part
    weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group_size}
    return weights | ({"observer": observer} if observer else {})
