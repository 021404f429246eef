"""What one engine's profile takes of a device, before it is started: the same numbers that vLLM will print."""

from dataclasses import dataclass, replace

from workbench.catalog.capacity import GIB, MEMORY_SHARE, Capacity, Device, capacity
from workbench.catalog.model import Model
from workbench.engine.command import CPU_KV_GIB
from workbench.engine.profile import Profile

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
DRAFT_WIDTH = 2  # drafts are stored in 16 bit


@dataclass(frozen=True, slots=True)
class Need:
    """What one engine takes: weights and overhead in any case, and KV for the context it shall hold, in bytes."""

    fixed: int
    kv: int

    @property
    def total(self) -> int:
        return self.fixed + self.kv


def fit(model: Model, profile: Profile, device: Device) -> Capacity:
    """The capacity of `device` for this profile; a draft model's weights count as memory that is not free."""
    kv_gib = _kv_gib(profile, device)
    free = device.free_bytes - _draft_bytes(profile, device)
    return capacity(
        model,
        replace(device, free_bytes=max(0, free)),
        precision(model),
        profile.context,
        kv_budget=None if kv_gib is None else int(kv_gib * GIB),
        value_bytes=WIDTHS.get(profile.dtype),
        memory_share=profile.memory_share or MEMORY_SHARE,
    )


def need(model: Model, profile: Profile, device: Device) -> Need:
    """For a pair: a KV cache that takes what is left can do with one conversation of full length."""
    found = fit(model, profile, device)
    kv = found.kv_bytes or 0 if _kv_gib(profile, device) is None else found.kv_budget
    return Need(found.weights + found.overhead + _draft_bytes(profile, device), kv)


def left_over(found: Capacity) -> int:
    """Bytes that nobody takes."""
    return max(0, found.available - found.weights - found.overhead - found.kv_budget)


def shorter_context(found: Capacity) -> int | None:
    """The context to propose where only the context is too long; None where there is nothing to propose."""
    too_long = found.kv_bytes is not None and found.kv_bytes > found.kv_budget
    return found.longest or None if too_long and not found.fits else None


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


def _draft_bytes(profile: Profile, device: Device) -> int:
    if not profile.speculation or not profile.speculation.draft:
        return 0
    stored = sum(file.stat().st_size for file in profile.speculation.draft.glob("*.safetensors"))
    width = WIDTHS.get(profile.dtype) or (4 if device.kind == "cpu" else 2)
    return stored * width // DRAFT_WIDTH
