"""What an engine takes once it is ready: what others hold is of the device that it is on."""

import pytest

from workbench import memory
from workbench.catalog.devices import Device
from workbench.engine import taken
from workbench.engine.profile import Profile
from workbench.engine_events import EngineMemory
from workbench.memory import Measured, Room

GB = 10**9
GPU, CPU = Device("GPU", "gpu", 80 * GB, 80 * GB), Device("CPU", "cpu", 64 * GB, 64 * GB)
ROOMS = {
    "cpu": Room("CPU", 64 * GB, 40 * GB), "gpu0": Room("GPU", 80 * GB, 5 * GB), "gpu1": Room("GPU", 80 * GB, 70 * GB),
}  # fmt: skip


@pytest.mark.parametrize(
    ("device", "used", "others"),
    [
        (GPU, {"cpu": 3 * GB, "gpu1": 8 * GB}, 2 * GB),
        (GPU, {"cpu": 3 * GB}, None),  # the driver does not tell whose the memory is
        (CPU, {"cpu": 3 * GB}, 21 * GB),
        (CPU, {"cpu": 3 * GB, "gpu0": 75 * GB}, 21 * GB),
        (GPU, {}, None),
    ],
)
def test_others_are_those_beside_the_engine(tiny, monkeypatch, device, used, others):
    monkeypatch.setattr(memory, "measure", lambda roots: Measured(ROOMS, dict.fromkeys(roots, used)))
    assert taken.completed(EngineMemory(), Profile(tiny), device, 7).others == others
