"""What an engine's profile will hold of each device's memory, and a smaller form of it that fits beside others."""

import math
from dataclasses import replace

from workbench import figures, memory
from workbench.admission import Offer
from workbench.book import Shortage
from workbench.catalog.capacity import GIB, MEMORY_SHARE, Device, devices
from workbench.catalog.folder import inspect
from workbench.engine import fit, memory_kept
from workbench.engine.profile import Profile
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError
from workbench.memory import HOST, gpu
from workbench.words import Sentence

LEAST_CONTEXT = 512  # tokens; less is no conversation
# CUDA's own on a GPU, which vLLM counts neither as its share nor as its own: 0.51 GiB on an H200.
CUDA = 550_000_000


def of(profile: Profile, interpreter: str = "", seen: str = "") -> dict[str, int]:
    """Bytes by device; empty where the model cannot be read. A GPU gives its whole share at once, whatever is used.

    What an earlier start with this interpreter took stands in the estimate's place. `seen` are the indexes of the GPUs
    that it may use, with commas; empty: those that our own environment names, else all.
    """
    try:
        found = devices()
        indexes = memory.seen(seen) or list(range(len(found)))
        device = found[indexes[0] if indexes[0] < len(found) else 0]
        size = _size(profile, device, memory_kept.recall(profile, interpreter, device))
    except (WorkbenchError, OSError):
        return {}
    if device.kind == "cpu":
        return {HOST: size}
    return {gpu(index): size for index in indexes[: profile.devices]}


def smaller(profile: Profile, interpreter: str, shortage: Shortage) -> Offer | None:
    """The same engine with a cache, and where it must be with a context, that fits into what is left."""
    try:
        device, model = devices()[0], inspect(profile.model)
        measured = memory_kept.recall(profile, interpreter, device)
        left = shortage.left - (CUDA if device.kind == "gpu" else 0)
        room = left - fit.need(model, profile, device, measured).fixed
        if profile.devices > 1 or room <= 0:
            return None
        if fit.has_fixed_cache(profile, device):
            changed = replace(profile, kv_gib=_floor(room / GIB))
        else:
            changed = replace(profile, memory_share=_floor(left / device.total_bytes))
        found = fit.fit(model, changed, device, measured)
        if not found.context or not found.longest:
            return None
        changed = replace(changed, context=min(found.context, found.longest))
        if changed.context < min(LEAST_CONTEXT, found.context):
            return None
        size = _size(changed, device, measured)
    except (WorkbenchError, OSError):  # also a share or a cache of nothing
        return None
    values = {"tokens": figures.tokens(changed.context), "size": figures.bytes_of(size)}
    return Offer(Sentence("A context of {tokens} tokens in {size}", values), changed) if size <= shortage.left else None


def _size(profile: Profile, device: Device, measured: EngineMemory | None) -> int:
    if not fit.has_fixed_cache(profile, device):
        return int(device.total_bytes * (profile.memory_share or MEMORY_SHARE)) + CUDA
    needed = fit.need(inspect(profile.model), profile, device, measured).total
    return needed + (CUDA if device.kind == "gpu" else 0)


def _floor(value: float) -> float:
    """In hundredths, as shares and sizes of a cache are written."""
    return math.floor(value * 100) / 100
