"""Measure quantized models beside their original, on each kind of held text: `python tests/bench/measured.py SPEC`."""

import json
import sys
from pathlib import Path

import footprint

from workbench.measure import quality
from workbench.quant_events import QualityMeasured
from workbench.quantization import calibration
from workbench.quantization.blocks import Skeleton, device_of


def main(spec: dict) -> None:
    """spec: `model`, `candidates` (folders) and `held`, the files of each kind of text, of which `tokens`
    are taken at most."""
    folder, device = Path(spec["model"]), device_of(spec)
    original = Skeleton(folder, device)
    candidates = {name: Skeleton(Path(name), device) for name in spec["candidates"]}
    tokenizer = calibration.tokenizer_of(folder)
    measures: dict[str, dict[str, tuple[int, float, float]]] = {name: {} for name in candidates}
    with footprint.measured() as told:
        for kind, files in spec["held"].items():
            texts = [text for file in files for text in calibration.documents(Path(file))]
            sequences = calibration.sequences(texts, tokenizer, quality.LENGTH, spec["tokens"])
            for event in quality.compare(original, candidates, sequences):
                if isinstance(event, QualityMeasured):
                    measures[event.name][kind] = event.tokens, event.kl, event.perplexity
        told["measures"] = measures


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
