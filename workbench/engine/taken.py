"""What an engine takes once it is ready: what it printed, completed by what its processes hold."""

from dataclasses import replace

from workbench import memory
from workbench.catalog.capacity import Device
from workbench.catalog.folder import inspect
from workbench.engine import memory_kept
from workbench.engine.fit import fit, has_fixed_cache
from workbench.engine.profile import Profile
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError


def completed(told: EngineMemory, profile: Profile, device: Device, pid: int) -> EngineMemory:
    """`told` by the engine below process `pid`, with what others hold, and on a CPU with all that it does not print.

    Takes some tens of milliseconds.
    """
    try:
        expected = fit(inspect(profile.model), profile, device)
    except WorkbenchError:  # the folder went away meanwhile
        return told
    if told.kv_bytes is not None and has_fixed_cache(profile, device):
        told = replace(told, kv_bytes=expected.kv_budget)  # it is printed in hundredths of a GiB
    found = memory.measure([pid])
    used = {place: size for place, size in found.used[pid].items() if (place == memory.HOST) == (device.kind == "cpu")}
    place = max(used, key=used.get, default="")  # of several GPUs any, and not the first where that is another's
    if not (held := used.get(place)) or place not in found.rooms:
        return told
    room = found.rooms[place]
    told = replace(told, others=max(0, room.total - room.free - held))
    if device.kind == "cpu" and told.kv_bytes is not None:
        told = replace(told, overhead=max(0, held - expected.weights - expected.draft - told.kv_bytes))
    return told


def remembered(profile: Profile, interpreter: str, device: Device, told: EngineMemory, pid: int) -> EngineMemory:
    """`told`, completed, and kept for the next estimate."""
    found = completed(told, profile, device, pid)
    memory_kept.remember(profile, interpreter, device, found)
    return found
