"""The devices a model could run on: NVIDIA GPUs where there are any, else this machine's processor."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from workbench.catalog.peak import peak_bandwidth

# Datasheet figures in GB/s; the first name that is part of the driver's name for the device counts.
BANDWIDTHS = {
    "H200": 4800, "H100 PCIe": 2039, "H100 NVL": 3938, "H100": 3350, "B200": 8000,
    "A100 80GB PCIe": 1935, "A100-SXM4-80GB": 2039, "A100-SXM4-40GB": 1555, "A100-PCIE-40GB": 1555,
    "RTX 5090 Laptop": 896, "RTX 5090": 1792, "RTX 4090 Laptop": 576, "RTX 4090": 1008, "RTX 3090 Ti": 1008,
    "RTX 3090": 936,
}  # fmt: skip
_GB = 10**9


@dataclass(frozen=True, slots=True)
class Device:
    """`kind` is "gpu" or "cpu". Memory in bytes; `free_bytes` as it was when asked.

    `bandwidth_bytes_s` is what its memory delivers at best (a processor's was measured here), None when not known.
    `packed_kernel` says whether vLLM has a kernel for packed 4-bit weights here; without one they are unpacked at load
    and save no memory.
    """

    name: str
    kind: str
    total_bytes: int
    free_bytes: int
    bandwidth_bytes_s: float | None = None
    packed_kernel: bool = True


def devices() -> list[Device]:
    """The GPUs, or the processor alone where there is none. Takes up to 0.3 s the first time."""
    return _gpus() or [_cpu()]


def _gpus() -> list[Device]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return []
    found = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = pynvml.nvmlDeviceGetName(handle)
            name = name.decode() if isinstance(name, bytes) else name
            found.append(Device(name, "gpu", *gpu_memory(pynvml, handle), _gpu_bandwidth(pynvml, handle, name)))
    except pynvml.NVMLError:  # a device that fell off the bus ends the list
        pass
    finally:
        pynvml.nvmlShutdown()
    return found


def gpu_memory(pynvml, handle) -> tuple[int, int]:
    """(total, free) in bytes as CUDA counts them: what driver and firmware keep of a GPU is nobody's to use.

    Of an H200 that is 615 MiB, which the older form of the question counts as in use by somebody.
    """
    try:
        told = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return told.total - told.reserved, told.free
    except pynvml.NVMLError:  # a driver before 510
        told = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return told.total, told.free


def _gpu_bandwidth(pynvml, handle, name: str) -> float | None:
    """From the datasheet, else bus width × memory clock, twice a cycle."""
    for known, gigabytes in BANDWIDTHS.items():
        if known in name:
            return gigabytes * _GB
    try:
        width = pynvml.nvmlDeviceGetMemoryBusWidth(handle)
        clock = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    except pynvml.NVMLError:
        return None
    return width / 8 * clock * 1e6 * 2 or None


def host_memory() -> tuple[int, int]:
    """All of the processor's memory that this process may use, and what of it is free, in bytes."""
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    if (limit := _container_limit()) is not None:
        most, used = limit
        total, free = min(total, most), min(free, max(0, most - used))
    return total, free


def _cpu() -> Device:
    total, free = host_memory()
    text = _processor()
    name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "CPU")
    return Device(name, "cpu", total, free, peak_bandwidth(name), "avx512f" in text)


@cache
def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _container_limit() -> tuple[int, int] | None:
    """(limit, in use) of the control group in bytes, where one is set."""
    for limit, used, parts, cached in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            values = [int(Path("/sys/fs/cgroup", name).read_text()) for name in (limit, used)]
            told = dict(line.split() for line in Path("/sys/fs/cgroup", parts).read_text().splitlines())
        except (OSError, ValueError):  # absent, or "max"
            continue
        # Files that were read count as in use, but give way at once: a model on disk would look like one in memory.
        return values[0], max(0, values[1] - int(told.get(cached, 0)))
    return None
