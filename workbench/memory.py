"""What memory this machine's devices have free, and what trees of processes really hold of it."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil
import pynvml

from workbench import guard
from workbench.catalog.devices import gpu_memory, host_memory

HOST = "cpu"


@dataclass(frozen=True, slots=True)
class Room:
    """One device's memory in bytes. `untold` is what is in use there without the driver telling by whom."""

    name: str
    total: int
    free: int
    untold: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """`rooms` by device: "cpu", "gpu0" and so on. `used` by the pid at a tree's root and by device, in bytes: of the
    processor's memory shared pages count in parts; a device is absent where the driver does not tell."""

    rooms: Mapping[str, Room]
    used: Mapping[int, Mapping[str, int]]


def gpu(index: int) -> str:
    """What the ledger calls a GPU."""
    return f"gpu{index}"


def seen(chosen: str = "") -> list[int]:
    """The numbers of the GPUs that CUDA shows to a process, its first one first: of `chosen`, else of our environment.

    None where all are shown, or where they are not named by number.
    """
    named = (chosen or os.environ.get("CUDA_VISIBLE_DEVICES", "")).split(",")
    return [int(each) for each in named if each.strip().isdigit()]


def measure(roots: Iterable[int]) -> Measured:
    """Ask driver and system once; takes some milliseconds for each process."""
    trees = {root: [root, *guard.descendants(root)] for root in roots if root}
    total, free = host_memory()
    rooms = {HOST: Room("CPU", total, free)}
    used = {root: {HOST: sum(map(_held, tree))} for root, tree in trees.items()}
    for index, (room, told) in enumerate(_gpus()):
        device, ours = gpu(index), 0
        for root, tree in trees.items():
            if any(pid in told for pid in tree):
                used[root][device] = sum(told.get(pid, 0) for pid in tree)
                ours += used[root][device]
        inside = {pid for tree in trees.values() for pid in tree}
        # In a container the driver tells pids of the host, which mean nothing here.
        others = sum(size for pid, size in told.items() if pid not in inside and psutil.pid_exists(pid))
        rooms[device] = Room(room.name, room.total, room.free, max(0, room.total - room.free - ours - others))
    return Measured(rooms, used)


def _held(pid: int) -> int:
    """A process's part of the memory it shares with others, and all that is its own; 0 when it is gone."""
    try:
        process = psutil.Process(pid)
        try:
            return process.memory_full_info().pss
        except (psutil.AccessDenied, AttributeError):  # another user's, or not Linux
            return process.memory_info().rss
    except psutil.Error:
        return 0


def _gpus() -> list[tuple[Room, dict[int, int]]]:
    """Each GPU and what the driver tells of its processes; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    found = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name, (total, free) = pynvml.nvmlDeviceGetName(handle), gpu_memory(pynvml, handle)
            try:
                told = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except pynvml.NVMLError:
                told = []
            sizes = {each.pid: each.usedGpuMemory for each in told if each.usedGpuMemory}
            found.append((Room(name, total, free), sizes))
    except pynvml.NVMLError:  # a device that fell off the bus ends the list
        pass
    finally:
        pynvml.nvmlShutdown()
    return found
