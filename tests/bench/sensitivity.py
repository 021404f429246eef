"""Whether the predicted damage can be trusted: `python tests/bench/sensitivity.py [MODEL]`.

Rounds single layers and measures what each does to the model (KL on held text); the ranks of prediction and measure
must agree. Then the mix that the prediction finds, against one width everywhere and against 8 bits in the first and
last block, at the same stored bits and all by plain rounding. Ends with status 1 where a bar is missed.
"""

import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from workbench import allocation, plan, whatif
from workbench.catalog import folder as catalog
from workbench.catalog import starter
from workbench.catalog.linears import Linear
from workbench.events import QualityMeasured, SensitivityMeasured
from workbench.measure import quality
from workbench.plan import Planned
from workbench.quantization import sensitivity
from workbench.quantization.blocks import Skeleton, device_of
from workbench.recipe import PRESETS, Choice, Recipe, with_group_size, with_rules

SINGLES, BITS, TOKENS = 28, 3, 2048
MIX_TOKENS = 4096
BAR = 0.6  # Spearman's coefficient


def main(folder: Path) -> int:
    torch.set_num_threads(2)
    recipe, model = PRESETS["layered"], catalog.inspect(folder)
    measured = [
        event
        for event in sensitivity.run(whatif.spec(folder, recipe), folder)
        if isinstance(event, SensitivityMeasured)
    ]
    original = Skeleton(folder, device_of({}))
    original.prove()
    agreed = _singles(original, {linear.name: linear for linear in model.linears}, measured)
    better = _mixes(original, folder, recipe, measured)
    return int(agreed < BAR or not better)


def _singles(original: Skeleton, linears: Mapping[str, Linear], measured: list[SensitivityMeasured]) -> float:
    chosen = random.Random(0).sample(measured, min(SINGLES, len(measured)))
    candidates: dict[str, quality.Reader] = {}
    for event in chosen:
        choice = Choice(method="rtn", bits=BITS, group_size=event.group_size, symmetric=event.symmetric)
        planned = Planned(linears[event.name], choice, 0)
        candidates[event.name] = quality.Plain(original, {event.block: {event.name: planned}})
    found = _compare(original, candidates, TOKENS)
    rows = [(event.damage[f"{BITS}/{event.group_size}"], found[event.name].kl, event.name) for event in chosen]
    for predicted, kl, name in sorted(rows, reverse=True):
        print(f"{name:40} predicted {predicted:.5f}  measured {kl:.5f}")
    agreed = spearman([row[0] for row in rows], [row[1] for row in rows])
    print(f"\nSpearman {agreed:.3f} (bar {BAR}) over {len(rows)} single layers at {BITS} bits, {TOKENS} held tokens\n")
    return agreed


def _mixes(original: Skeleton, folder: Path, recipe: Recipe, measured: list[SensitivityMeasured]) -> bool:
    model = catalog.inspect(folder)
    last = max(linear.block for linear in model.linears)
    ends = recipe
    for linear in model.linears:
        if linear.block in (0, last):
            choice = recipe.attention if linear.in_attention else recipe.mlp
            ends = with_rules(ends, (linear.name,), replace(choice, bits=8, symmetric=True))
    rivals = {"recipe's own": recipe, "group 32 everywhere": with_group_size(recipe, 32), "8 bits at both ends": ends}
    plans = {name: plan.make(model, chosen) for name, chosen in rivals.items()}
    pairs = {name: f"mix against {name}" for name in rivals}
    for name, pair in pairs.items():
        proposal = allocation.for_bits(model, recipe, measured, allocation.average_bits(plans[name]))
        plans[pair] = proposal.plan
    found = _compare(
        original, {name: quality.Plain(original, by_block(made)) for name, made in plans.items()}, MIX_TOKENS
    )
    for name, made in plans.items():
        print(f"{name:34} {allocation.average_bits(made):.3f} bits  KL {found[name].kl:.4f}  "
              f"perplexity {found[name].perplexity:.2f} (original {found[name].original_perplexity:.2f})")  # fmt: skip
    return all(found[pair].kl < found[name].kl for name, pair in pairs.items())


def _compare(original: Skeleton, candidates: dict[str, quality.Reader], tokens: int) -> dict[str, QualityMeasured]:
    held = quality.held(original.weights.folder, tokens)
    events = quality.compare(original, candidates, held)
    return {event.name: event for event in events if isinstance(event, QualityMeasured)}


def by_block(made: plan.Plan) -> dict[int, dict[str, Planned]]:
    blocks: dict[int, dict[str, Planned]] = {}
    for planned in made.quantized:
        blocks.setdefault(planned.linear.block, {})[planned.linear.name] = planned
    return blocks


def spearman(first: list[float], second: list[float]) -> float:
    """Pearson's coefficient of the ranks; no ties are expected."""
    ranks = torch.tensor([first, second]).argsort(1).argsort(1).double()
    return torch.corrcoef(ranks)[0, 1].item()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else starter.where()))
