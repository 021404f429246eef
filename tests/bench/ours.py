"""Quantize once, as `lathe quantize` does, and tell what it took: `python tests/bench/ours.py SPEC`."""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import footprint

from workbench.events import Note
from workbench.quantization import awq, pipeline
from workbench.words import say


def main(spec: dict) -> None:
    """spec: that of the pipeline, and with `steps` another number of AWQ's grid points than its own."""
    with footprint.measured() as told, tempfile.TemporaryDirectory() as folder:
        if "steps" in spec:
            awq.STEPS = spec["steps"]
        for event in pipeline.run(spec | {"held_tokens": 0}, Path(folder)):
            if isinstance(event, Note):
                print(say(event.message, **event.values), flush=True)
                told["tokens"] = event.values.get("tokens", told.get("tokens", 0))
        told["versions"] = {name: version(name) for name in ("torch", "transformers", "compressed-tensors")}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
