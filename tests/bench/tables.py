"""The bench's tables, and whether its bars and goals are met."""

from collections.abc import Mapping

import children
import standings
from children import Done
from rivals import BARE, GRIDS, LLMCOMPRESSOR, OURS, RTN
from standings import Goal, Spread, spread

BARS = {"layered": 0.5, "best": 0.3}  # of plain rounding's KL, on the grid that the presets have here
LAYERED_GOAL, BEST_GOAL, TIME_GOAL, MEMORY_GOAL = 0.7, 0.4, 0.5, 0.6


def quality(done: list[Done]) -> bool:
    """Print the tables of all grids; whether a bar or a goal was missed."""
    print(*children.versions(done), sep="\n")
    missed = False
    for grid in dict.fromkeys(one.run.grid for one in done):
        missed |= _grid(grid, [one for one in done if one.run.grid == grid])
    return missed


def _grid(name: str, done: list[Done]) -> bool:
    kinds = list(done[0].measures)
    print(f"\n### {name}\n\n| | bits | seeds | KL | {' | '.join(f'KL, {kind}' for kind in kinds)} | perplexity |")
    print("|---|" + "---|" * (len(kinds) + 4))
    kl: dict[str, Spread] = {}
    bits: dict[str, float] = {}
    for who in dict.fromkeys(one.run.who for one in done):
        own = [one for one in done if one.run.who == who]
        all_kinds = [standings.together(one.measures.values()) for one in own]
        kl[who], bits[who] = spread(measure.kl for measure in all_kinds), own[0].told["bits"]
        each = [str(spread(one.measures[kind].kl for one in own)) for kind in kinds]
        perplexity = spread(measure.perplexity for measure in all_kinds).mean
        print(f"| {who} | {bits[who]:.3f} | {len(own)} | {kl[who]} | {' | '.join(each)} | {perplexity:.2f} |")
    print()
    calibrated = {one.told["tokens"] for one in done if one.run.tool != RTN}
    if len(calibrated) > 1:
        print(f"not all were calibrated on the same tokens: {sorted(calibrated)}")
    return _goals(name, kl, bits) or len(calibrated) > 1


def _goals(grid: str, kl: Mapping[str, Spread], bits: Mapping[str, float]) -> bool:
    goals: dict[str, Goal] = {}
    plain, missed = kl.get(f"{RTN} rtn"), False
    for preset, bar in BARS.items() if grid == GRIDS[0].name else ():
        if plain and (mine := kl.get(f"{OURS} {preset}")):
            goals[f"{preset} against RTN"] = Goal(mine, plain, bar)
    theirs = {who: value for who, value in kl.items() if not who.startswith((f"{OURS} ", f"{RTN} "))}
    for preset, rival, bar in (
        ("layered", f"{LLMCOMPRESSOR} layered", LAYERED_GOAL),
        ("best", standings.best_of(theirs) if theirs else "", BEST_GOAL),
    ):
        mine = f"{OURS} {preset}"
        if rival in kl and mine in kl:
            goals[f"{preset} against {rival}"] = Goal(kl[mine], kl[rival], bar)
            if not standings.same_bits(bits[mine], bits[rival]):
                print(f"{preset} and {rival} differ by more than 1 % in stored bits: no fair comparison")
                missed = True
    for name, goal in goals.items():
        print(f"{name}: KL {goal}")
    return missed or not all(goal.met for goal in goals.values())


def cost(done: list[Done]) -> bool:
    """Print time and memory; whether a goal was missed. Row by row, one run each."""
    print("\n### Time and memory on the CPU\n")
    print(*children.versions(done), sep="\n")
    print("\n| | CPU-s | wall s | MB above the bare import | MB of that import | calibration tokens |")
    print("|---|---|---|---|---|---|")
    for one in done:
        told = one.told
        print(
            f"| {one.run.tool} {one.run.method}, {one.run.grid} | {told['cpu_s']:.1f} | {told['wall_s']:.1f} | "
            f"{told['bytes'] / 1e6:.0f} | {told['bare_bytes'] / 1e6:.0f} | {told['tokens']} |"
        )
    found = {(one.run.tool, one.run.method, one.run.grid): one.told for one in done}
    met = []
    for (tool, method, rows), theirs in found.items():
        mine = found.get((OURS, "layered", f"{rows}{BARE}"))
        if (tool, method) == (LLMCOMPRESSOR, "layered") and mine:
            for name, part, bar in (("time", "cpu_s", TIME_GOAL), ("memory", "bytes", MEMORY_GOAL)):
                goal = Goal(spread([mine[part]]), spread([theirs[part]]), bar)
                met.append(goal.met)
                print(f"{name} at {rows}: {goal}")
    return not all(met)
