"""Watching an engine and this machine."""

import asyncio
from contextlib import suppress
from itertools import pairwise

from fake_server import FakeServer

from workbench.engine.endpoint import Endpoint
from workbench.engine.monitor import device_samples, sample_devices, watch


async def some(work, enough) -> None:
    task = asyncio.create_task(work)
    while not enough():
        await asyncio.sleep(0.01)
        assert not task.done(), task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_figures_come_each_period_and_a_dead_engine_is_a_gap():
    samples: list = []
    with FakeServer(metrics="vllm:num_requests_running 2\n") as server:
        await some(watch(Endpoint(server.url), samples.append, 0.02), lambda: len(samples) >= 3)
        assert [sample.running for sample in samples[:3]] == [2.0, 2.0, 2.0]
        gaps = [later.at_s - sooner.at_s for sooner, later in pairwise(samples)]
        assert min(gaps) >= 0.015
        server.metrics = "vllm:num_requests_running{ 2\n"
        samples.clear()
        await some(watch(Endpoint(server.url), samples.append, 0.02), lambda: samples)
        assert samples[0].running is None
    samples.clear()
    await some(watch(Endpoint(server.url), samples.append, 0.02), lambda: samples)
    assert samples[0].running is None


async def test_this_machine():
    samples: list = []
    await some(device_samples(samples.append, 0.05), lambda: samples)
    for sample in (samples[0], sample_devices()):
        assert 0 <= sample.cpu_load <= 1
        assert 0 < sample.ram_used < sample.ram_total
