"""What an engine's profile will hold of each device's memory, and a smaller form of it that fits beside others."""

import math
from dataclasses import replace

from workbench import figures
from workbench.admission import Offer
from workbench.catalog.capacity import BLOCK, GIB, MEMORY_SHARE, Device, devices
from workbench.catalog.folder import inspect
from workbench.engine import fit
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError
from workbench.ledger import Shortage
from workbench.memory import HOST, gpu
from workbench.words import Sentence

LEAST_CONTEXT = 512  # tokens; less is no conversation
SHARE_STEP = 100  # shares of a GPU are written in hundredths


def of(profile: Profile) -> dict[str, int]:
    """Bytes by device; empty where the model cannot be read. A GPU gives its whole share at once, whatever is used."""
    try:
        found = devices()
        size = _size(profile, found[0])
    except (WorkbenchError, OSError):
        return {}
    if found[0].kind == "cpu":
        return {HOST: size}
    used = min(profile.devices, len(found))
    return {gpu(index): size if profile.kv_gib is None else math.ceil(size / used) for index in range(used)}


def smaller(profile: Profile, shortage: Shortage) -> Offer | None:
    """The same engine with a cache, and where it must be with a context, that fits into what is left."""
    try:
        device = devices()[0]
        model = inspect(profile.model)
        found = fit.fit(model, profile, device)
        fixed = fit.need(model, profile, device).fixed
    except (WorkbenchError, OSError):
        return None
    room = shortage.left - fixed
    if profile.devices > 1 or not found.kv_bytes_per_token or not found.context or room <= 0:
        return None
    fitting = (room // found.kv_bytes_per_token // BLOCK - 1) * BLOCK
    context = min(found.context, fitting)
    if context < min(LEAST_CONTEXT, found.context):
        return None
    changed = replace(profile, context=context)
    if device.kind == "cpu" or profile.kv_gib is not None:
        # One block more than the conversation takes: vLLM keeps one for itself.
        gib = math.ceil((context + BLOCK) * found.kv_bytes_per_token / GIB * 100) / 100
        changed = replace(changed, kv_gib=min(gib, profile.kv_gib or gib))
    else:
        changed = replace(
            changed, memory_share=math.floor(shortage.left / device.total_bytes * SHARE_STEP) / SHARE_STEP
        )
    size = _size(changed, device)
    if size > shortage.left:
        return None
    values = {"tokens": figures.tokens(context), "size": figures.bytes_of(size)}
    return Offer(Sentence("A context of {tokens} tokens in {size}", values), changed)


def _size(profile: Profile, device: Device) -> int:
    if device.kind == "gpu" and profile.kv_gib is None:
        return int(device.total_bytes * (profile.memory_share or MEMORY_SHARE))
    return fit.need(inspect(profile.model), profile, device).total
