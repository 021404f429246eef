"""The bench's tables, and whether its bars and goals are met."""

from collections.abc import Iterator, Mapping

import children
import standings
from children import Done
from rivals import BARE, GRIDS, LLMCOMPRESSOR, OURS, RTN, Grid
from standings import Goal, Spread, spread

BARS = {"layered": 0.5, "best": 0.3}  # of plain rounding's KL, on the grid that the presets have here
LAYERED_GOAL, BEST_GOAL, TIME_GOAL, MEMORY_GOAL = 0.7, 0.4, 0.5, 0.6


def quality(grid: Grid, done: list[Done], held_tokens: int) -> bool:
    """Print the table of a grid; whether a bar or a goal was missed, or what is printed is no fair comparison."""
    if not done:
        return True
    print(*dict.fromkeys(children.versions(done)), sep="\n")
    kinds = list(done[0].measures)
    held = ", ".join(f"{measure.tokens} of {kind}" for kind, measure in done[0].measures.items())
    print(f"held tokens: {held}; calibration tokens: {max(one.told.get('tokens', 0) for one in done)}")
    print(f"\n| | bits | seeds | KL | {' | '.join(f'KL, {kind}' for kind in kinds)} | perplexity |")
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
    unfair = list(_unfair(done, bits, held_tokens))
    goals = dict(_goals(grid, kl))
    print(*unfair, *(f"{name}: KL {goal}" for name, goal in goals.items()), sep="\n", flush=True)
    return bool(unfair) or not all(goal.met for goal in goals.values())


def _unfair(done: list[Done], bits: Mapping[str, float], held_tokens: int) -> Iterator[str]:
    """Why these rows must not be compared; nothing where they may."""
    calibrated = sorted({one.told["tokens"] for one in done if one.run.tool != RTN})
    if len(calibrated) > 1:
        yield f"not all were calibrated on the same tokens: {calibrated}"
    measured = sorted({standings.together(one.measures.values()).tokens for one in done})
    if len(measured) != 1 or measured[0] < held_tokens:
        yield f"measured on {measured} held tokens, which should be the same and at least {held_tokens}"
    for who, own in bits.items():
        if not standings.same_bits(own, next(iter(bits.values()))):
            yield f"{who} differs by more than 1 % in stored bits"


def _goals(grid: Grid, kl: Mapping[str, Spread]) -> Iterator[tuple[str, Goal]]:
    rivals = {who: value for who, value in kl.items() if not who.startswith((f"{OURS} ", f"{RTN} "))}
    wanted = [
        ("layered", f"{LLMCOMPRESSOR} layered", LAYERED_GOAL),
        ("best", standings.best_of(rivals) if rivals else "", BEST_GOAL),
    ]
    if grid == GRIDS[0]:
        wanted += [(preset, f"{RTN} rtn", bar) for preset, bar in BARS.items()]
    for preset, rival, bar in wanted:
        for who, mine in kl.items():
            if rival in kl and who.partition(",")[0] == f"{OURS} {preset}":
                yield f"{who} against {rival}", Goal(mine, kl[rival], bar)


def cost(done: list[Done]) -> bool:
    """Print time and memory; whether a goal was missed. Row by row, one run each."""
    print("\n### Time and memory on the CPU\n")
    print(*dict.fromkeys(children.versions(done)), sep="\n")
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
