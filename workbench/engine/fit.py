"""What one engine's profile takes of a device, before it is started: the same numbers that vLLM will print."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.catalog.capacity import GIB, MEMORY_SHARE, Capacity, Device, cache_of, capacity, kv_bytes_per_token
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.catalog.overhead import Overhead, estimate
from workbench.engine import heads, parallel
from workbench.engine.command import CPU_KV_GIB
from workbench.engine.profile import Profile
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
ALIKE = 0.02  # what is printed in hundredths of a GiB, and whole blocks, make no larger difference
KV_WIDTHS = WIDTHS | {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class Need:
    """What one engine takes: weights and overhead in any case, and KV for the context it shall hold, in bytes."""

    fixed: int
    kv: int

    @property
    def total(self) -> int:
        return self.fixed + self.kv


def fit(model: Model, profile: Profile, device: Device, measured: EngineMemory | None = None) -> Capacity:
    """The capacity of `device` for this profile; of several devices, that of each.

    What a draft keeps for each token lies in the same cache. `measured` is what an earlier start of the same took:
    it stands in the estimate's place.
    """
    kv_gib = _kv_gib(profile, device)
    draft = _draft(model, profile, device)
    choices = {
        "context": profile.context,
        "kv_budget": None if kv_gib is None else int(kv_gib * GIB),
        "value_bytes": WIDTHS.get(profile.dtype),
        "kv_value_bytes": KV_WIDTHS.get(profile.kv_dtype),
        "memory_share": profile.memory_share or MEMORY_SHARE,
        "beside": _beside(model, profile, device, draft),
        "draft": draft.weights if draft else 0,
        "overhead": _overhead(model, profile, device),
        "block": profile.block_size,
    }
    found = capacity(model, device, precision(model), **choices)
    if profile.tensor_parallel > 1 or profile.pipeline_parallel > 1:
        choices |= _cut(found, parallel.share(model, profile), device)
        found = capacity(model, device, precision(model), **choices)
    if measured is None:
        return found
    if measured.total and device.kind == "gpu":
        device = replace(device, total_bytes=measured.total)
    return replace(capacity(model, device, precision(model), **(choices | _learned(found, measured))), learned=True)


def need(model: Model, profile: Profile, device: Device, measured: EngineMemory | None = None) -> Need:
    """For a pair: a KV cache that takes what is left can do with one conversation of full length."""
    found = fit(model, profile, device, measured)
    kv = found.kv_bytes or 0 if _kv_gib(profile, device) is None else found.kv_budget
    return Need(found.weights + found.overhead + found.draft, kv)


def has_fixed_cache(profile: Profile, device: Device) -> bool:
    """Whether the KV cache has a size of its own, and does not take what is left."""
    return _kv_gib(profile, device) is not None


def shorter_context(found: Capacity) -> int | None:
    """The context to propose where only the context is too long; None where there is nothing to propose."""
    return found.longest or None if found.too_long else None


def taken_by_token(found: Capacity, measured: EngineMemory) -> int | None:
    """What a token took where that is not what all layers keep: some look back only so far, or keep a state instead.

    It depends on the context; None where there was none like it, or nothing to correct.
    """
    if not (measured.kv_bytes and measured.kv_tokens and measured.context == found.context):
        return None
    counted, _ = cache_of(measured.kv_bytes, found.kv_bytes_per_token, found.block, found.context)
    if counted is not None and abs(counted / measured.kv_tokens - 1) < ALIKE:
        return None
    return max(1, round(measured.kv_bytes / measured.kv_tokens))


def precision(model: Model) -> str:
    """What `capacity` calls the model's stored weights."""
    if model.quantization is None:
        return "FP16"
    return "INT8" if model.quantization.bits == 8 else "INT4"


def _cut(found: Capacity, share: parallel.Share, device: Device) -> dict[str, Any]:
    """What one of several devices holds; processors' shares lie in the same memory."""
    cut: dict[str, Any] = {}
    if device.kind == "gpu":
        cut["loaded"] = int(found.weights * share.weights)
    if found.kv_bytes_per_token:
        cut["per_token"] = max(1, int(found.kv_bytes_per_token * share.kv))
    return cut


def _learned(found: Capacity, measured: EngineMemory) -> dict[str, Any]:
    """What a start measured in place of what was estimated for it."""
    graphs = measured.graphs if measured.set_aside is None else measured.set_aside
    told = (measured.activations, graphs, measured.overhead)
    estimates = (found.activations, found.graphs, found.rest)
    parts = (each if known is None else known for known, each in zip(told, estimates, strict=True))
    learned: dict[str, Any] = {"overhead": Overhead(*parts)}
    if measured.weights and measured.weights > found.draft:
        learned["loaded"] = measured.weights - found.draft
    if per_token := taken_by_token(found, measured):
        learned["per_token"] = per_token
    return learned


def _overhead(model: Model, profile: Profile, device: Device) -> Overhead:
    """By the engine's step in this profile."""
    graphs, drafting = profile.running != "eager", profile.speculation is not None
    return estimate(model, device, profile.batched_tokens, profile.max_sequences, graphs, drafting)


def _kv_gib(profile: Profile, device: Device) -> float | None:
    """The fixed size of the KV cache; None where it takes what is left."""
    return CPU_KV_GIB if profile.kv_gib is None and device.kind == "cpu" else profile.kv_gib


def _draft(model: Model, profile: Profile, device: Device) -> Capacity | None:
    """What the draft takes, computed in its target's type; None without one, or where it cannot be read."""
    folder = profile.speculation and profile.speculation.draft
    draft = _inspected(folder, _changed_s(folder)) if folder else None
    if draft is None:
        return None
    width = _width(model, profile, device)
    return capacity(draft, device, precision(draft), value_bytes=width, kv_value_bytes=KV_WIDTHS.get(profile.kv_dtype))


def _beside(model: Model, profile: Profile, device: Device, draft: Capacity | None) -> int:
    """Bytes that drafting keeps for each token: a draft's, or those of the model's own layers for MTP."""
    method = profile.speculation and profile.speculation.method
    if draft:
        return 0 if method == "medusa" else draft.kv_bytes_per_token or 0
    if method == "mtp" and model.layers and (own := heads.own_layers(model)):
        width = KV_WIDTHS.get(profile.kv_dtype) or _width(model, profile, device)
        return (kv_bytes_per_token(model, width) or 0) // model.layers * (own.depth or 1)
    return 0


def _width(model: Model, profile: Profile, device: Device) -> int:
    """Bytes of a computed value."""
    halved = model.quantization is not None and model.quantization.half_only
    return WIDTHS.get(profile.dtype) or (4 if device.kind == "cpu" and not halved else 2)


@lru_cache(maxsize=8)  # a profile is weighed at every keystroke
def _inspected(folder: Path, _changed_s: float) -> Model | None:
    try:
        return inspect(folder)
    except WorkbenchError:
        return None


def _changed_s(folder: Path) -> float:
    try:
        return (folder / "config.json").stat().st_mtime
    except OSError:
        return 0.0
