"""How much harm quantizing does, ours beside what it replaces: `python tests/bench/quantization.py [MODEL] [options]`.

Quantizes the model with each recipe and each calibration seed, every run in a child of its own, then measures all of
them side by side on two kinds of held text. Plain rounding (RTN) at the same grid is always among them; with `--theirs`
also llm-compressor and AutoAWQ, on the same token ids and at the same stored bits. `--cost` adds time and memory on the
CPU. Ends with status 1 when a bar or a goal is missed. What a run left in `--place` is not done again.

`--theirs` names the interpreter of an environment of their own, made in this order: `pip install torch==2.13.0`, then
`pip install llmcompressor==0.14.0.1`, then `pip install --no-deps --no-build-isolation autoawq==0.2.9`.
"""

import argparse
import math
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import tables
from children import Children, Done
from rivals import GRIDS, Run, cost_runs, quality_runs

from workbench import paths
from workbench.catalog import starter
from workbench.quantization import calibration
from workbench.quantization.calibration import Sequences
from workbench.recipe import LAYERED, Recipe

LIBRARIES = ("torch", "transformers", "compressed-tensors")
KINDS = {"prose": ("essays", "prose", "stories"), "technical and chat": ("technical_held", "dialogue_held")}
SAMPLES, LENGTH = 64, 512  # about half of our calibration text, so that seeds differ in what they take
COST_SAMPLES, COST_LENGTH, COST_GRID_POINTS = 24, 256, (6, 20)
HELD_AT_LEAST = 32_000


def main(options: argparse.Namespace) -> int:
    print(f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES), flush=True)
    failed = False
    with tempfile.TemporaryDirectory() as fresh:
        place, ends_at = options.place or Path(fresh), time.monotonic() + options.limit
        if not options.no_quality:
            failed |= _quality(options, Children(options.model, options.theirs, place, options.jobs, ends_at))
        if options.cost:
            apart = Children(options.model, options.theirs, place / "cost", options.cost_jobs, ends_at, cpu=True)
            failed |= _cost(options, apart)
    return int(failed)


def _quality(options: argparse.Namespace, children: Children) -> bool:
    rivals = {"steps": options.steps, "dtype": options.dtype} if options.theirs else None
    held = {kind: [str(paths.RESOURCES / "held" / f"{name}.txt") for name in names] for kind, names in KINDS.items()}
    failed = False
    for grid in (GRIDS[number] for number in options.grids):
        done: dict[str, Done] = {}
        missing, missed = False, False
        for seed in range(options.seeds):
            calibrated, sequences = _calibration(options.model, options.samples, options.length, seed)
            runs = quality_runs(grid, calibrated, sequences, rivals, options.threads)
            runs = [run for run in runs if _wanted(run, options) and (options.range_search or not run.searches_ranges)]
            now = children.measure(children.quantize(runs), held, options.held_tokens)
            done |= {one.run.name: one for one in now}
            missing |= len(now) < len(runs)
            # A long bench that is stopped shall have told what it knows.
            print(f"\n### {options.model.name}, {grid.name}, after seed {seed}: {len(now)} of {len(runs)} runs\n")
            missed = tables.quality(grid, list(done.values()), HELD_AT_LEAST)
        failed |= missing or missed
    return failed


def _cost(options: argparse.Namespace, children: Children) -> bool:
    calibrated, sequences = _calibration(options.model, COST_SAMPLES, COST_LENGTH, 0)
    runs = cost_runs(calibrated, sequences, COST_GRID_POINTS, threads=options.threads, dtype=options.dtype)
    runs = [run for run in runs if _wanted(run, options) and (options.theirs or "recipe" in run.spec)]
    return tables.cost(children.quantize(runs))


def _wanted(run: Run, options: argparse.Namespace) -> bool:
    return not options.only or any(part in run.name for part in options.only)


def _calibration(model: Path, samples: int, length: int, seed: int) -> tuple[Recipe, Sequences]:
    """A recipe that says which text is taken, and the tokens that it takes."""
    recipe = replace(LAYERED, samples=samples, length=length, seed=seed)
    tokenizer = calibration.tokenizer_of(model)
    return recipe, calibration.sequences(calibration.own_text(), tokenizer, length, samples * length, seed)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", nargs="?", type=Path, default=starter.where())
    options.add_argument("--theirs", help="the interpreter that has the tools to compare with")
    options.add_argument("--seeds", type=int, default=3, help="calibration seeds")
    options.add_argument("--grids", type=int, nargs="*", default=[0, 1, 2], help="which of the grids")
    options.add_argument("--samples", type=int, default=SAMPLES, help="calibration samples")
    options.add_argument("--length", type=int, default=LENGTH, help="tokens in a sample")
    options.add_argument("--steps", type=int, default=20, help="theirs: AWQ's grid points (ours has 20)")
    options.add_argument("--held-tokens", type=int, default=1 << 30, help="of each kind of text; all by default")
    options.add_argument("--jobs", type=int, default=1, help="children at the same time; six fill a GPU")
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of a child")
    options.add_argument("--dtype", default="bfloat16", help="what theirs computes in")
    options.add_argument("--place", type=Path, help="folder that keeps the runs")
    options.add_argument("--range-search", action="store_true", help="also llm-compressor with its search of ranges")
    options.add_argument("--cost", action="store_true", help="also measure time and memory")
    options.add_argument("--cost-jobs", type=int, default=1, help="children at the same time while that is measured")
    options.add_argument("--only", nargs="*", help="only rows with one of these in their name")
    options.add_argument(
        "--limit", type=float, default=math.inf, help="seconds; what is not quantized then is left out"
    )
    options.add_argument("--no-quality", action="store_true")
    sys.exit(main(options.parse_args()))
