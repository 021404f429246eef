"""The two slots of the Serve page: filled with models that are read beside the window, and weighed for its device."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from ui.engines import Engines
from ui.serve.slot import Slot
from ui.tasks import Tasks
from ui.widgets.profile_form import ProfileForm
from workbench.catalog import folder
from workbench.catalog.capacity import Device
from workbench.catalog.model import Model
from workbench.engine.profiles_kept import Chosen
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError
from workbench.settings import Settings


class Slots(QObject):
    """By side. `filled(side)` when another model stands there, `weighed(side)` when its estimate was made anew."""

    filled = Signal(str)
    weighed = Signal(str)

    def __init__(
        self, settings: Settings, tasks: Tasks, engines: Engines, forms: Mapping[str, ProfileForm], parent: QObject
    ):
        super().__init__(parent)
        self._settings, self._tasks, self._engines = settings, tasks, engines
        self._device: Device | None = None
        self._ran: set[str] = set()
        self._slots = {side: Slot(form) for side, form in forms.items()}
        for side, form in forms.items():
            form.changed.connect(lambda side=side: self.weigh(side))
            form.model_picked.connect(lambda path, side=side: self.open(side, path))
        engines.changed.connect(self._on_engine)

    def __getitem__(self, side: str) -> Slot:
        return self._slots[side]

    def put(self, side: str, model: Model | None) -> None:
        """Fill one slot with a model that was read already; None empties it."""
        self._slots[side].model = model
        self._slots[side].form.show_folder(model.folder if model else None)
        self.filled.emit(side)
        self.weigh(side)

    def open(self, side: str, path: Path | None) -> None:
        """Fill it with the model in a folder; what is wrong with that is told and leaves the slot empty."""
        if path is None:
            self.put(side, None)
        else:
            self._tasks.start(self._read(side, path))

    def open_profile(self, side: str, chosen: Chosen) -> None:
        """Put a profile with its model into the slot; engines that others run have none here."""
        profile = chosen.profile if isinstance(chosen, Separation) else chosen
        if profile:
            self._tasks.start(self._read(side, profile.model, chosen))
        else:
            self._slots[side].form.show_chosen(chosen)

    def show_device(self, device: Device) -> None:
        """Weigh for this device from now on."""
        self._device = device
        for side in self._slots:
            self.weigh(side)

    def weigh(self, side: str) -> None:
        """Estimate anew; what runs keeps the estimate that it was started with."""
        slot = self._slots[side]
        if slot.model is None or not self._engines.is_running(side):
            slot.weigh(self._device, self._settings.interpreter)
            self.weighed.emit(side)

    def _on_engine(self, side: str) -> None:
        """What it took is known once it has ended, and counts from then on."""
        running = self._engines.is_running(side)
        if side in self._ran and not running:
            self._slots[side].weigh(self._device, self._settings.interpreter)
        (self._ran.add if running else self._ran.discard)(side)

    async def _read(self, side: str, path: Path, chosen: Chosen | None = None) -> None:
        try:
            self.put(side, await asyncio.to_thread(folder.inspect, path))
        except WorkbenchError:
            self.put(side, None)
            raise
        if chosen:
            self._slots[side].form.show_chosen(chosen)
