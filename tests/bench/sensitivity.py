"""Whether the predicted damage can be trusted: `python tests/bench/sensitivity.py [MODEL] [options]`.

For each calibration seed: rounds single layers and measures what each does to the model (KL on held text); the ranks
of prediction and measure must agree. Then the mixes of 4 and 8 bits that the prediction finds, against one width
everywhere and against 8 bits in the outer blocks, each pair at the same stored bits, rounded plainly and by the
recipes' own methods. Ends with status 1 where a rank, or a mean over the seeds, misses its bar.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from workbench import allocation, plan, whatif
from workbench.catalog import folder as catalog
from workbench.catalog import starter
from workbench.catalog.model import Model
from workbench.measure import quality
from workbench.plan import Plan, Planned
from workbench.quant_events import QualityMeasured, SensitivityMeasured
from workbench.quantization import packing, sensitivity
from workbench.quantization.blocks import Skeleton, device_of
from workbench.quantization.course import Course, by_block
from workbench.recipe import GROUP_SIZES, PRESETS, Choice, Recipe, with_group_size, with_rules

BITS, SINGLE_TOKENS = 3, 2048
BAR = 0.6  # Spearman's coefficient
WIDTHS = (4, 8)  # what vLLM serves on every device
MIX, PLAIN = ": mix", ": mix by plain rounding"
OUTER = (4.55, 5.0, 5.5, 6.0)  # bits up to which outer blocks get 8, from both ends


@dataclass(frozen=True)
class Rounded(quality.Plain):
    """Plain rounding, with what goes through the model kept on the device: moving it takes longer than computing."""

    def embed(self, batches: Iterable[Tensor]) -> list[Tensor]:
        return [states.to(self.original.device) for states in self.original.embed(batches)]


@dataclass(frozen=True)
class Alone(Rounded):
    """Plain rounding in one block; the blocks that stay whole are shared with the other candidates."""

    whole: dict[int, nn.Module]

    def load(self, index: int) -> nn.Module:
        if index in self.planned:
            return super().load(index)
        if index not in self.whole:
            self.whole.clear()
            self.whole[index] = self.original.load(index)
        return self.whole[index]


def main(options: argparse.Namespace) -> int:
    torch.set_num_threads(options.threads)
    original = Skeleton(options.model, device_of({}))
    original.prove()
    held = quality.held(options.model, options.tokens)
    print(f"{options.model.name}, {original.device}, {held.tokens} held tokens, torch {torch.__version__}")
    model, failed, found, began = catalog.inspect(options.model), False, defaultdict(list), time.monotonic()
    for seed in options.seeds:
        base = replace(PRESETS["layered"], seed=seed, samples=options.samples)
        events = sensitivity.run(whatif.spec(model.folder, base) | {"threads": options.threads}, model.folder)
        measured = [event for event in events if isinstance(event, SensitivityMeasured)]
        failed |= _singles(original, model, measured, options.singles, seed) < BAR
        for rounding in ("rtn", *options.recipes):
            plans = dict(_plans(model, _by(base, PRESETS[rounding]), measured, seed))
            candidates: dict[str, quality.Reader] = {}
            for name, made in plans.items():
                if time.monotonic() - began < options.until:
                    plain = rounding == "rtn"
                    candidates[name] = Rounded(original, by_block(made)) if plain else quantized(original, made)
            print(f"seed {seed}: {len(candidates)} of {len(plans)} made, {time.monotonic() - began:.0f} s", flush=True)
            kl = {name: event.kl for name, event in _compare(original, candidates, held).items()}
            for name in kl:
                rival = name.removesuffix(MIX).removesuffix(PLAIN)
                if name != rival and rival in kl:
                    bits = [allocation.average_bits(plans[each]) for each in (rival, name)]
                    found[rounding, name].append((*bits, kl[rival], kl[name]))
                    print(f"seed {seed} {rounding:8} {name:45} {kl[rival]:.4f} against {kl[name]:.4f}", flush=True)
    worse = [name for (rounding, name), runs in found.items() if _tell(rounding, name, runs) and name.endswith(MIX)]
    return int(failed or bool(worse))


def _singles(original: Skeleton, model: Model, measured: list[SensitivityMeasured], count: int, seed: int) -> float:
    """Spearman's coefficient of predicted damage and measured KL of single layers."""
    linears, whole = {linear.name: linear for linear in model.linears}, dict[int, nn.Module]()
    chosen, candidates = random.Random(seed).sample(measured, min(count, len(measured))), {}
    for event in chosen:
        choice = Choice(method="rtn", bits=BITS, group_size=event.group_size, symmetric=event.symmetric)
        planned = Planned(linears[event.name], choice, 0)
        candidates[event.name] = Alone(original, {event.block: {event.name: planned}}, whole)
    found = _compare(original, candidates, quality.held(original.weights.folder, SINGLE_TOKENS))
    rows = [(event.damage[f"{BITS}/{event.group_size}"], found[event.name].kl, event.name) for event in chosen]
    for predicted, kl, name in sorted(rows, reverse=True)[:8]:
        print(f"{name:40} predicted {predicted:.5f}  measured {kl:.5f}")
    agreed = spearman([row[0] for row in rows], [row[1] for row in rows])
    print(f"seed {seed}: Spearman {agreed:.3f} (bar {BAR}) over {len(rows)} single layers at {BITS} bits", flush=True)
    return agreed


def _plans(model: Model, base: Recipe, measured: list[SensitivityMeasured], seed: int) -> Iterator[tuple[str, Plan]]:
    """Rivals and the mixes at the stored bits of each, another pair first for each seed (time may end all early).

    Where the methods leave less than plain rounding would, also the mix that does not know that.
    """
    rivals = list(_rivals(model, base))
    unaware = [replace(event, remaining={}) for event in measured]
    for name, rival in rivals[2 * seed % len(rivals) :] + rivals[: 2 * seed % len(rivals)]:
        made = plan.make(model, rival)
        bits = allocation.average_bits(made)
        yield name, made
        yield name + MIX, allocation.for_bits(model, base, measured, bits, WIDTHS).plan
        if base.mlp.method != "rtn":
            yield name + PLAIN, allocation.for_bits(model, base, unaware, bits, WIDTHS).plan


def _rivals(model: Model, base: Recipe) -> Iterator[tuple[str, Recipe]]:
    yield "layered's own groups", base
    yield "group 32 everywhere", with_group_size(base, 32)
    last = max(linear.block for linear in model.linears)
    for target in OUTER:
        fitting = base, ""
        for count in range(1, last + 2):
            outer = [block for at in range(last + 1) for block in (at, last - at)][:count]
            made = _raised(model, base, [linear.name for linear in model.linears if linear.block in outer])
            if allocation.average_bits(plan.make(model, made)) > target:
                break
            fitting = made, f"8 bits in {count} outer blocks"
        if fitting[1]:
            yield fitting[1], fitting[0]
    yield "8 bits in attention", _raised(model, base, [linear.name for linear in model.linears if linear.in_attention])


def _raised(model: Model, base: Recipe, names: list[str]) -> Recipe:
    """8 bits for these layers, with the coarsest groups that divide them: the fairest rival in stored bits."""
    for entry in plan.make(model, base).linears:
        if entry.linear.name in names:
            size = next(size for size in GROUP_SIZES if not entry.linear.in_features % size)
            raised = replace(entry.choice, bits=8, symmetric=True, group_size=size)
            base = with_rules(base, (entry.linear.name,), raised)
    return base


def _by(made: Recipe, methods: Recipe) -> Recipe:
    """The bits, groups, symmetry and calibration of `made`, rounded as `methods` does in attention and MLP."""
    return replace(
        methods,
        attention=_like(made.attention, methods.attention),
        mlp=_like(made.mlp, methods.mlp),
        rules=tuple(
            replace(rule, choice=_like(rule.choice, methods.attention if "attn" in rule.pattern else methods.mlp))
            for rule in made.rules
        ),
        samples=made.samples,
        length=made.length,
        seed=made.seed,
    )


def _like(own: Choice, other: Choice) -> Choice:
    return own if own.kept else replace(other, bits=own.bits, group_size=own.group_size, symmetric=own.symmetric)


@dataclass(frozen=True)
class Made:
    """A quantized model in memory, block by block as `lathe quantize` makes it; norms may hold AWQ scales."""

    original: Skeleton
    tensors: dict[str, Tensor]

    def add(self, tensors: dict[str, Tensor]) -> None:
        self.tensors.update((name, tensor.cpu()) for name, tensor in tensors.items())

    def load(self, index: int) -> nn.Module:
        block, prefix = self.original.load(index), self.original.name(index) + "."
        own = {name.removeprefix(prefix): each for name, each in self.tensors.items() if name.startswith(prefix)}
        for name, tensor in packing.unpack_block(own).items():
            block.get_parameter(name).copy_(tensor)
        return block

    def embed(self, batches: Iterable[Tensor]) -> list[Tensor]:
        return [states.to(self.original.device) for states in self.original.embed(batches)]

    def last(self) -> tuple[nn.Module, Tensor]:
        return self.original.last()


def quantized(original: Skeleton, made: Plan) -> Made:
    """By the same course through the blocks as a job takes; nothing is written."""
    result = Made(original, {})
    with tempfile.TemporaryDirectory() as folder:
        for _ in Course(original, made, Path(folder), result, False).run():
            pass
    return result


def _compare(
    original: Skeleton, candidates: Mapping[str, quality.Reader], held: quality.Sequences
) -> dict[str, QualityMeasured]:
    events = quality.compare(original, candidates, held)
    return {event.name: event for event in events if isinstance(event, QualityMeasured)}


def _tell(rounding: str, name: str, runs: list[tuple[float, float, float, float]]) -> bool:
    """Print a pair over the seeds; whether the mix is worse."""
    bits, mixed, theirs, ours = ([run[at] for run in runs] for at in range(4))
    ratios = [mix / other for _, _, other, mix in runs]
    print(f"{rounding:8} {name:45} {statistics.mean(bits):.3f} bits  KL {statistics.mean(theirs):.4f}   "
          f"{statistics.mean(mixed):.3f} bits  KL {statistics.mean(ours):.4f}   ratio {statistics.mean(ratios):.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f}, {len(runs)} seeds)", flush=True)  # fmt: skip
    return statistics.mean(ours) > statistics.mean(theirs)


def spearman(first: list[float], second: list[float]) -> float:
    """Pearson's coefficient of the ranks; no ties are expected."""
    ranks = torch.tensor([first, second], dtype=torch.float64).argsort(1).argsort(1).double()
    return torch.corrcoef(ranks)[0, 1].item()


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("model", nargs="?", type=Path, default=starter.where())
    given.add_argument("--recipes", nargs="*", default=["layered"], help="presets that also round the mixes")
    given.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    given.add_argument("--until", type=float, default=1e9, help="seconds after which no mix is begun")
    given.add_argument("--singles", type=int, default=60, help="layers that are rounded alone")
    given.add_argument("--samples", type=int, default=64, help="calibration samples of 512 tokens")
    given.add_argument("--tokens", type=int, default=32_768, help="held tokens that mixes are measured on")
    given.add_argument("--threads", type=int, default=2)
    sys.exit(main(given.parse_args()))
