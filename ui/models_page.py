"""What models are there and what fits; where a model starts its way."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QSplitter, QStackedWidget, QWidget

from ui import language
from ui.log_drawer import LogSource, Status
from ui.model_details import ModelDetails
from ui.models_found import look, reason_against, refusal
from ui.models_table import ModelsTable, Row
from ui.no_models import NoModels
from ui.notices import Notices
from ui.page import Page
from ui.tasks import Tasks
from ui.widgets import EmptyState, button, label
from workbench import jobs
from workbench import settings as stored
from workbench.catalog.capacity import Device
from workbench.engine.facts import EngineFacts
from workbench.events import Event
from workbench.progress import Progress
from workbench.settings import Settings
from workbench.words import Sentence, say

RECENT = 12


class ModelsPage(Page):
    """`rows` is what the last scan found; None while none has ended yet."""

    quantize_picked = Signal(object)  # a Model
    serve_picked = Signal(object)

    def __init__(self, settings: Settings, tasks: Tasks, notices: Notices):
        super().__init__(settings, tasks, notices)
        self.rows: list[Row] | None = None
        self.device: Device | None = None
        self.devices: list[Device] = []
        self.engine: EngineFacts | None = None
        self.progress: Progress | None = None
        self._job: Path | None = None
        self._getting: asyncio.Task | None = None
        self._scanning: asyncio.Task | None = None
        self._wanted: Path | None = None
        self.set_title("Models")
        self.device_box = QComboBox()
        language.bind(self.device_box.setAccessibleName, "Device")
        self.device_box.activated.connect(self._on_device)
        self.reason = label(role="muted")
        self.serve_button = button("Serve", self._serve, icon="play-line")
        self.open_button = button("Open folder…", self.open_folder, icon="folder-open-line")
        self.quantize_button = self.set_primary("Quantize", self._quantize, "scissors-cut-line")
        self.head.addWidget(self.device_box)
        self.head.addStretch(1)
        self.head.addWidget(self.reason)
        self.head.addWidget(self.open_button)
        self.head.addWidget(self.serve_button)
        self.views = QStackedWidget()
        self.views.addWidget(self._waiting())
        self.views.addWidget(self._nothing())
        self.views.addWidget(self._library())
        self.content.addWidget(self.views, 1)
        self.redraw()

    # -- what it does ------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        self.rescan()

    def rescan(self) -> None:
        """Read the library again, off the loop; the choice of model stays."""
        if self._scanning is not None:
            self._scanning.cancel()
        self._scanning = self.tasks.start(self._scan())

    def open_folder(self) -> None:
        """Ask for a folder and open it."""
        self._ask(say("Open a model folder"), self.open_path)

    def add_library(self) -> None:
        """Ask for a folder whose models shall always be listed."""
        self._ask(say("Model folders"), self._add_library)

    def open_path(self, folder: Path) -> None:
        """Add `folder` (a model, or a folder of models) to the library and make it current."""
        self._wanted = folder
        self.list_also(folder)

    def list_also(self, folder: Path) -> None:
        """A new model lies at `folder`: list it from now on."""
        if not any(folder.is_relative_to(listed) for listed in self.settings.library):
            known = [path for path in self.settings.recent if path != str(folder)]
            self.settings.recent = (str(folder), *known)[:RECENT]
            stored.save(self.settings)
        self.rescan()

    def get_starter(self) -> None:
        """Fetch the starter model in a job."""
        if self._getting is None:
            self.progress = Progress()
            self._getting = self.begin(self._get_starter())
            self.touch()

    def show_found(self, rows: list[Row], devices: list[Device]) -> None:
        """Take what a scan found. Also how pictures and tests fill the page."""
        self.devices = devices
        if self.device not in devices:
            names = [each.name for each in devices]
            kept = names.index(self.device.name) if self.device and self.device.name in names else 0
            self.device = devices[kept] if devices else None
        first = self.rows is None
        self.rows = [replace(row, refused=refusal(row, self.engine)) for row in rows]
        self.table.show_rows(self.rows)
        if self._wanted is not None:
            self.table.pick(self._wanted)
            self._wanted = None
        self.device_box.clear()
        self.device_box.addItems([each.name for each in devices])
        self.device_box.setCurrentIndex(devices.index(self.device) if self.device else -1)
        self.redraw()
        if first and self.isVisible():
            (self.table if rows else self.none.starter).setFocus()

    def show_engine(self, engine: EngineFacts) -> None:
        """Say of quantized models whether this engine, the installed one, serves them."""
        self.engine = engine
        if self.rows is not None:
            self.show_found(self.rows, self.devices)

    def would_lose(self) -> Sentence | None:
        return Sentence("The starter model is not complete yet.") if self._getting else None

    def statuses(self) -> list[Status]:
        if self._getting is None or self.progress is None:
            return []
        stage = Sentence(self.progress.stage) if self.progress.stage else Sentence("Starting")
        return [Status(Sentence("Starter model: {stage}", {"stage": stage}), self.progress.share)]

    def logs(self) -> list[LogSource]:
        return [LogSource(Sentence("Starter model"), self._job / "worker.log")] if self._job else []

    # -- drawing -----------------------------------------------------------------------------------------------

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Coming here leads to the list. Not as the page's focus proxy, for Tab then skips its other controls."""
        super().focusInEvent(event)
        (self.table if self.rows else self.none.starter).setFocus(event.reason())

    def redraw(self) -> None:
        self.none.show_progress(self.progress if self._getting else None)
        self.views.setCurrentIndex(0 if self.rows is None else 2 if self.rows else 1)
        filled = bool(self.rows)
        for each in (self.device_box, self.open_button, self.serve_button, self.quantize_button):
            each.setVisible(filled)
        self._draw_choice()

    def _draw_choice(self) -> None:
        row = self.table.current()
        if row is None:
            self.reason.hide()
            return
        self.details.show_row(row, self.device, self.engine)
        blocked = []
        for action, made in (("quantize", self.quantize_button), ("serve", self.serve_button)):
            why = reason_against(row, action)
            made.setEnabled(why is None)
            made.setToolTip(str(why or ""))
            if why:
                blocked.append(why)
        self.reason.setVisible(bool(blocked))
        if blocked:
            language.show(self.reason.setText, blocked[0])

    # -- parts -------------------------------------------------------------------------------------------------

    def _waiting(self) -> QWidget:
        return EmptyState("search-line", "Looking for models…")

    def _nothing(self) -> QWidget:
        self.none = NoModels()
        self.none.starter_wanted.connect(self.get_starter)
        self.none.cancelled.connect(self.cancel)
        self.none.folder_wanted.connect(self.open_folder)
        self.none.library_wanted.connect(self.add_library)
        return self.none

    def _library(self) -> QWidget:
        self.table = ModelsTable()
        self.details = ModelDetails()
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self.touch())
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setChildrenCollapsible(False)
        split.addWidget(self.table)
        split.addWidget(self.details)
        split.setStretchFactor(0, 2)
        split.setStretchFactor(1, 1)
        split.setSizes([720, 440])
        whole = QWidget()
        row = QHBoxLayout(whole)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(split)
        return whole

    # -- work --------------------------------------------------------------------------------------------------

    async def _scan(self) -> None:
        folders = (*self.settings.library, *map(Path, self.settings.recent))
        self.show_found(*await asyncio.to_thread(look, folders, self.device and self.device.name))

    async def _get_starter(self) -> None:
        self._job = jobs.create("starter", {})
        try:
            await jobs.run(self._job, self.on_event, self.settings)
        finally:
            self._getting = None
            self.touch()
        self._wanted = Path(self.progress.path)
        self.rescan()

    def on_event(self, event: Event) -> None:
        self.progress.apply(event)
        self.touch()

    def _ask(self, title: str, take: Callable[[Path], None]) -> None:
        picker = QFileDialog(self, title)
        picker.setFileMode(QFileDialog.FileMode.Directory)
        picker.fileSelected.connect(lambda path: take(Path(path)))
        picker.finished.connect(picker.deleteLater)
        picker.open()

    def _add_library(self, folder: Path) -> None:
        self.settings.model_folders = tuple(dict.fromkeys((*self.settings.model_folders, str(folder))))
        stored.save(self.settings)
        self.rescan()

    def _on_device(self, index: int) -> None:
        self.device = self.devices[index]
        self.rescan()

    def _quantize(self) -> None:
        if (row := self.table.current()) and row.model:
            self.quantize_picked.emit(row.model)

    def _serve(self) -> None:
        if (row := self.table.current()) and row.model:
            self.serve_picked.emit(row.model)
