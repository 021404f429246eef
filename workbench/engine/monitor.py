"""Watches an engine's figures and this machine's devices, once a period."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import httpx
import psutil
import pynvml

from workbench.catalog.devices import gpu_memory
from workbench.engine.endpoint import Endpoint
from workbench.engine.metrics import read_engine
from workbench.engine_events import EngineSample
from workbench.errors import WorkbenchError
from workbench.events import Event


async def watch(endpoint: Endpoint, on_event: Callable[[Event], None], period_s: float = 1.0) -> None:
    """Report an EngineSample each period until cancelled. A poll without answer is a sample without figures: a gap."""
    async with endpoint.open(timeout=max(5.0, period_s)) as http:
        while True:
            began_s = time.monotonic()
            on_event(await sampled(http))
            await asyncio.sleep(max(0.0, began_s + period_s - time.monotonic()))


async def sampled(http: httpx.AsyncClient) -> EngineSample:
    """The engine's figures now, without any where it does not answer."""
    at_s = time.monotonic()
    try:
        page = await http.get("/metrics")
        page.raise_for_status()
        return read_engine(page.text, at_s)
    except (httpx.HTTPError, WorkbenchError):
        return EngineSample(at_s)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU now: load 0 to 1, memory in bytes, power in watts; None where the driver does not tell.

    `load` and `memory_busy` are shares of time: in which it computed, and in which its memory was read or written. The
    second is no bandwidth: a memory that is read slowly all the time is busy all the time.
    """

    name: str
    load: float | None
    memory_used: int | None
    memory_total: int | None
    power_w: float | None
    memory_busy: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """This machine now: processor load 0 to 1 over all cores, memory in bytes, its GPUs."""

    at_s: float
    cpu_load: float
    ram_used: int
    ram_total: int
    gpus: tuple[GpuSample, ...] = ()


async def device_samples(on_sample: Callable[[DeviceSample], None], period_s: float = 1.0) -> None:
    """Report a DeviceSample each period until cancelled. Drivers may take long to answer: asked in a thread."""
    psutil.cpu_percent()  # the first call has no interval to measure over
    while True:
        await asyncio.sleep(period_s)
        on_sample(await asyncio.to_thread(sample_devices))


def sample_devices() -> DeviceSample:
    """Ask the devices once; blocks for as long as the driver does."""
    memory = psutil.virtual_memory()
    return DeviceSample(
        at_s=time.monotonic(),
        cpu_load=psutil.cpu_percent() / 100,
        ram_used=memory.total - memory.available,
        ram_total=memory.total,
        gpus=_gpus(),
    )


def _gpus() -> tuple[GpuSample, ...]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_gpu(handle) for handle in handles)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: object) -> GpuSample:
    memory = _asked(partial(gpu_memory, pynvml), handle)
    rates = _asked(pynvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _asked(pynvml.nvmlDeviceGetPowerUsage, handle)
    limit = _asked(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return GpuSample(
        name=_asked(pynvml.nvmlDeviceGetName, handle) or "GPU",
        load=rates.gpu / 100 if rates else None,
        memory_used=memory[0] - memory[1] if memory else None,
        memory_total=memory[0] if memory else None,
        power_w=milliwatts / 1000 if milliwatts is not None else None,
        memory_busy=rates.memory / 100 if rates else None,
        power_limit_w=limit / 1000 if limit else None,
    )


def _asked(question: Callable, handle: object):
    """The driver's answer; None where this device has none (a laptop without a power meter, a shared GPU)."""
    try:
        return question(handle)
    except pynvml.NVMLError:
        return None
