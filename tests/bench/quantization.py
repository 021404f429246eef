"""How much of plain rounding's harm each recipe avoids: `python tests/bench/quantization.py [MODEL] [RECIPE …]`.

Quantizes the model with each recipe, then measures all of them, and plain rounding (RTN) at the same bits, groups and
symmetry, side by side on the same held tokens. Ends with status 1 when a ratio is above its bar.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from workbench import plan, recipe
from workbench.catalog import folder as catalog
from workbench.catalog import starter
from workbench.events import Note, QualityMeasured
from workbench.measure import quality
from workbench.quantization import pipeline
from workbench.quantization.blocks import Skeleton, device_of

LIBRARIES = ("torch", "transformers", "compressed-tensors")
BARS = {"layered": 0.5, "best": 0.3}


def main(model: Path, names: list[str], samples: int | None) -> int:
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as place:
        lines, candidates = {}, {}
        for chosen in names:
            name = Path(chosen).stem
            began, cpu = time.monotonic(), time.process_time()
            spec = {"model": str(model), "output": f"{place}/{name}", "held_tokens": 0}
            spec["recipe"] = recipe.to_dict(recipe.load(chosen)) | ({"samples": samples} if samples else {})
            for event in pipeline.run(spec, Path(place)):
                if isinstance(event, Note):
                    print(name, event.message.format(**event.values), flush=True)
            lines[name] = f"{time.monotonic() - began:6.0f} s {time.process_time() - cpu:6.0f} CPU-s"
            candidates[name] = Skeleton(Path(place) / name, device_of(spec))
        original = Skeleton(model, device_of({}))
        planned = plan.make(catalog.inspect(model), recipe.load(names[0]))
        candidates["RTN"] = quality.Plain(original, pipeline.by_block(planned))
        held = quality.held(model, quality.HELD_TOKENS)
        measured = [
            event for event in quality.compare(original, candidates, held) if isinstance(event, QualityMeasured)
        ]
    plain = next(event for event in measured if event.name == "RTN")
    print(f"\n{model.name}: {plain.tokens} held tokens, original perplexity {plain.original_perplexity:.2f}")
    print(f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES))
    failed = plain.tokens < 8000
    for event in measured:
        ratio, bar = event.kl / plain.kl, BARS.get(event.name)
        failed |= bar is not None and ratio > bar
        print(
            f"{event.name:10} KL {event.kl:.4f}  ratio {ratio:.3f}{f' (bar {bar})' if bar else '':10}  perplexity "
            f"{event.perplexity:.2f}  top-1 {event.top1_agreement:.3f}  {lines.get(event.name, '')}"
        )
    return int(failed)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model", nargs="?", type=Path, default=starter.where())
    options.add_argument("recipes", nargs="*", default=["layered", "best"], help="presets or recipe files")
    options.add_argument("--samples", type=int, help="calibration samples of 512 tokens; as many as the recipe says")
    given = options.parse_args()
    sys.exit(main(given.model, given.recipes, given.samples))
