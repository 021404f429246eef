"""What one engine's profile takes of a device, before it is started: the same numbers that vLLM will print."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from workbench.catalog.capacity import GIB, MEMORY_SHARE, Capacity, Device, capacity, kv_bytes_per_token
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.engine import heads
from workbench.engine.command import CPU_KV_GIB
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_WIDTHS = WIDTHS | {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class Need:
    """What one engine takes: weights and overhead in any case, and KV for the context it shall hold, in bytes."""

    fixed: int
    kv: int

    @property
    def total(self) -> int:
        return self.fixed + self.kv


def fit(model: Model, profile: Profile, device: Device) -> Capacity:
    """The capacity of `device` for this profile.

    A draft's weights count as memory that is not free; what it keeps for each token lies in the same cache.
    """
    kv_gib = _kv_gib(profile, device)
    draft = _draft(model, profile, device)
    return capacity(
        model,
        replace(device, free_bytes=max(0, device.free_bytes - (draft.weights if draft else 0))),
        precision(model),
        profile.context,
        kv_budget=None if kv_gib is None else int(kv_gib * GIB),
        value_bytes=WIDTHS.get(profile.dtype),
        kv_value_bytes=KV_WIDTHS.get(profile.kv_dtype),
        memory_share=profile.memory_share or MEMORY_SHARE,
        beside=_beside(model, profile, device, draft),
    )


def need(model: Model, profile: Profile, device: Device) -> Need:
    """For a pair: a KV cache that takes what is left can do with one conversation of full length."""
    found = fit(model, profile, device)
    kv = found.kv_bytes or 0 if _kv_gib(profile, device) is None else found.kv_budget
    draft = _draft(model, profile, device)
    return Need(found.weights + found.overhead + (draft.weights if draft else 0), kv)


def left_over(found: Capacity) -> int:
    """Bytes that nobody takes."""
    return max(0, found.available - found.weights - found.overhead - found.kv_budget)


def shorter_context(found: Capacity) -> int | None:
    """The context to propose where only the context is too long; None where there is nothing to propose."""
    return found.longest or None if found.too_long else None


def measured_kv(found: Capacity, tokens: int | None) -> int | None:
    """Bytes of the KV cache by the tokens that the engine says it holds."""
    return tokens * found.kv_bytes_per_token if tokens and found.kv_bytes_per_token else None


def precision(model: Model) -> str:
    """What `capacity` calls the model's stored weights."""
    if model.quantization is None:
        return "FP16"
    return "INT8" if model.quantization.bits == 8 else "INT4"


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
