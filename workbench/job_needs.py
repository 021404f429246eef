"""What a job takes at most of each device's memory, told from shapes before it runs. Nothing here reads a tensor.

All arithmetic of the jobs is float32, one block at a time; the sums below name what lies beside each other at the peak.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import figures, moments_kept
from workbench import recipe as recipes
from workbench.admission import Offer
from workbench.book import Shortage
from workbench.catalog import folder as catalog
from workbench.catalog.devices import devices
from workbench.catalog.model import Model
from workbench.errors import WorkbenchError
from workbench.memory import HOST, gpu, seen
from workbench.recipe import Recipe
from workbench.remarks import FEWEST_TOKENS
from workbench.words import Sentence

VALUE = 4  # bytes of float32
IMPORTED = 600_000_000  # Python with torch and transformers, measured
CUDA = 600_000_000  # the context and its libraries on the device
CUDA_HOST = 2_500_000_000  # the same in the processor's memory
BATCH = 4096  # tokens that run through a block at once
ROWS, DRAWN_ROWS = 64, 256  # positions whose logits are held at once, where they are compared and where drawn from
HELD_TOKENS = 8192  # that the quality is measured on
PROBE = 3072  # tokens that the outputs are weighed on
KEPT = 1 << 30  # results of a pass that are kept instead of computed twice
RESIDENT = 4 << 30  # activations that stay on a GPU
SLACK = 1.1  # what the allocators hold on top
LOOKED_AT = 4  # layers that a trial worker keeps, about


@dataclass(frozen=True, slots=True)
class _Shape:
    """Counts of values: of the largest block and layer, and of one token."""

    block: int
    layer: int
    hidden: int
    widest: int
    vocab: int
    blocks: int
    stored: int  # bytes of the largest block on disk

    @property
    def batch(self) -> int:
        """Bytes of what one batch leaves in a block's parts."""
        return VALUE * BATCH * (2 * self.widest + 4 * self.hidden)

    @property
    def head(self) -> int:
        """Bytes of the head."""
        return VALUE * self.vocab * self.hidden

    @property
    def stored_head(self) -> int:
        """Bytes of the head, or of the embedding, as it is read from disk."""
        return self.head // 2

    def logits(self, rows: int) -> int:
        """Bytes of some rows of logits, what is made of them, and of the head as it is stored."""
        return 6 * VALUE * rows * self.vocab + self.stored_head


def of(kind: str, spec: Mapping[str, Any]) -> dict[str, int] | None:
    """Bytes by device; empty where the model does not tell, None for jobs that are small or short."""
    if kind not in ("quantize", "quality", "statistics", "sensitivity", "whatif"):
        return None
    try:
        model = catalog.inspect(Path(spec["original" if kind == "quality" else "model"]))
        shape = _shape(model)
        recipe = None if kind == "quality" else recipes.from_dict(spec["recipe"])
    except (WorkbenchError, KeyError, ValueError):
        return {}
    if kind == "quantize":
        stream, work, host = _quantize(shape, recipe, spec)
    elif kind == "quality":
        readers = 1 + len(spec["candidates"])
        stream, work, host = _measured(shape, readers, int(spec.get("tokens") or HELD_TOKENS), heads=readers), 0, 0
    elif kind == "whatif":
        layer = 2 * shape.layer + VALUE * shape.widest**2
        stream, work, host = 0, 0, LOOKED_AT * layer + VALUE * (4 * shape.layer + 2 * shape.widest**2)
    else:
        stream, work, host = _statistics(shape, recipe)
    device = _device(spec)
    if device == HOST or kind == "whatif":
        return {HOST: int(SLACK * (IMPORTED + stream + work + host))}
    beside = 0 if stream <= RESIDENT else stream  # activations that stay in the host's memory
    return {
        device: int(SLACK * (CUDA + work + stream - beside)),
        HOST: int(SLACK * (CUDA_HOST + host + max(shape.stored, shape.stored_head) + beside)),
    }


def smaller(kind: str, spec: Mapping[str, Any], shortage: Shortage) -> Offer | None:
    """A quantization that would fit: beside a full GPU on the processor, else with fewer calibration samples."""
    if kind != "quantize":
        return None
    if shortage.device != HOST:
        changed = {**spec, "device": "cpu"}
        if size := _fitting(changed, shortage):
            return Offer(Sentence("On the processor in {size}, which takes longer", {"size": size}), changed)
    recipe = dict(spec["recipe"])
    while (count := recipe["samples"] // 2) * recipe["length"] >= FEWEST_TOKENS:
        recipe["samples"] = count
        changed = {**spec, "recipe": dict(recipe)}
        if size := _fitting(changed, shortage):
            values = {"samples": figures.tokens(count), "size": size}
            return Offer(Sentence("Calibration samples: {samples}, in {size}", values), changed)
    return None


def _fitting(spec: Mapping[str, Any], shortage: Shortage) -> str:
    """How much it would take, in words; empty where that does not fit either."""
    found = of("quantize", spec)
    if not found or any(size > shortage.left_on.get(device, 0) for device, size in found.items()):
        return ""
    return " + ".join(map(figures.bytes_of, found.values()))


def _quantize(shape: _Shape, recipe: Recipe, spec: Mapping[str, Any]) -> tuple[int, int, int]:
    """Bytes of activations, of what is computed on, and of what stays in the host's memory: the result does not."""
    aimed = recipe.targets == "original"
    calibrated = any(choice.method != "rtn" for choice in recipe.choices)
    tokens = recipe.samples * recipe.length if calibrated else 0
    stream, wide = VALUE * tokens * shape.hidden, VALUE * tokens * shape.widest
    # The stream, the original's beside it, and what enters o or down for all of the text.
    streams = (2 if aimed else 1) * stream + max(stream, wide if wide <= KEPT else 0)
    moments = VALUE * shape.widest**2 * (5 if aimed else 4)  # H, its factor and their copies
    turn = VALUE * (shape.block * (2 if aimed else 1) + 4 * shape.layer) + (moments + shape.batch if calibrated else 0)
    held = int(spec.get("held_tokens", HELD_TOKENS))
    # The original's head, which the result shares, and another while it is read.
    measuring = _measured(shape, 3 if spec.get("measure_rtn") else 2, held, heads=2) if held else 0
    return streams, max(turn, measuring - streams, shape.stored_head), 0


def _measured(shape: _Shape, readers: int, tokens: int, heads: int) -> int:
    """Models beside each other: the stream of each, at the end the heads that differ."""
    block = VALUE * 2 * shape.block + shape.batch
    return readers * VALUE * tokens * shape.hidden + max(block, heads * shape.head + shape.logits(ROWS))


def _statistics(shape: _Shape, recipe: Recipe) -> tuple[int, int, int]:
    """First the text goes forwards, then some of it backwards, from the head on."""
    tokens = moments_kept.samples(recipe) * recipe.length
    moments = VALUE * (3 * shape.hidden**2 + shape.widest**2)
    forwards = VALUE * shape.block + moments + shape.batch
    backwards = VALUE * (shape.block + PROBE * (6 * shape.widest + 8 * shape.hidden))
    entering = 2 * PROBE * shape.hidden * shape.blocks  # of each block, in 16 bit
    return VALUE * tokens * shape.hidden, max(forwards, backwards, shape.head + shape.logits(DRAWN_ROWS)), entering


def _shape(model: Model) -> _Shape:
    blocks: Counter[int] = Counter()
    for linear in model.linears:
        blocks[linear.block] += linear.weights
    widest = max(linear.in_features for linear in model.linears)
    largest = max(blocks.values())
    return _Shape(
        block=largest,
        layer=max(linear.weights for linear in model.linears),
        hidden=model.hidden or widest,
        widest=widest,
        vocab=model.vocab or 0,
        blocks=len(blocks),
        stored=2 * largest,
    )


def _device(spec: Mapping[str, Any]) -> str:
    """Where the job computes: as it asks for, else the first GPU that it may use."""
    asked = str(spec.get("device") or devices()[0].kind)
    return HOST if asked.startswith("cpu") else gpu((seen() or [0])[0])
