"""The window: its pages in a row, the connections between them, the action table, and closing."""

import asyncio
from pathlib import Path

from PySide6.QtGui import QIcon, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QMainWindow,
    QMenu,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from ui import actions, language, place, theme
from ui.actions import Action
from ui.banners import Banners
from ui.chat_page import ChatPage
from ui.closing import ClosingQuestion
from ui.conflict_box import Conflicts
from ui.device_strip import DeviceStrip
from ui.engines import Engines
from ui.ledger_box import LedgerBox
from ui.live_dock import LiveDock
from ui.live_panel import LivePanel
from ui.log_drawer import LogDrawer, LogSource
from ui.models_page import ModelsPage
from ui.notices import Notices
from ui.page import Page
from ui.palette import Choice, Palette
from ui.quantize_page import QuantizePage
from ui.rail import Rail, Station
from ui.serve_page import ServePage
from ui.settings_dialog import SettingsDialog
from ui.tasks import Tasks
from workbench import paths, words
from workbench import settings as stored
from workbench.catalog.folder import Model
from workbench.engine import monitor
from workbench.engine.monitor import DeviceSample
from workbench.errors import WorkbenchError
from workbench.settings import Settings
from workbench.words import Sentence, say

STATIONS = (
    Station("models", "Models", "stack-line"),
    Station("quantize", "Quantize", "scissors-cut-line"),
    Station("serve", "Serve", "play-circle-line"),
    Station("chat", "Chat", "chat-3-line"),
)
WITH_LIVE = ("serve", "chat")


class MainWindow(QMainWindow):
    """Stands without a loop for pictures; `begin` starts what needs one. `closed` is set when it may go."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.closed = asyncio.Event()
        self.notices = Notices(self)
        self.tasks = Tasks(self.notices.tell)
        self.conflicts = Conflicts(self)
        self.tasks.ask = self.conflicts.ask
        self.models_page = ModelsPage(settings, self.tasks, self.notices)
        self.quantize_page = QuantizePage(settings, self.tasks, self.notices)
        self.engines = Engines(settings, self.tasks, self)
        self.serve_page = ServePage(settings, self.tasks, self.notices, self.engines)
        self.chat_page = ChatPage(settings, self.tasks, self.notices, self.engines)
        self.live_panel = LivePanel(self.engines, self.tasks)
        self.pages: dict[str, Page] = {
            "models": self.models_page,
            "quantize": self.quantize_page,
            "serve": self.serve_page,
            "chat": self.chat_page,
        }
        self.question: ClosingQuestion | None = None
        self._begun = False
        self.setWindowTitle("Lathe")
        self.setWindowIcon(QIcon(str(paths.RESOURCES / "icons" / "lathe.svg")))
        self._lay_out()
        self._connect()
        self.actions_by_id = actions.install(self, self.table)
        self.palette_box = Palette(self, self._choices)
        self._menu = QMenu(self)
        self.strip.menu_button.setMenu(self._menu)
        self._menu.addActions(list(self.actions_by_id.values()))
        self._restore()

    @property
    def table(self) -> tuple[Action, ...]:
        """Everything the window can be told to do."""
        return (
            Action("models", "Go to Models", "Ctrl+1", lambda: self.show_page("models")),
            Action("quantize", "Go to Quantize", "Ctrl+2", lambda: self.show_page("quantize")),
            Action("serve", "Go to Serve", "Ctrl+3", lambda: self.show_page("serve")),
            Action("chat", "Go to Chat", "Ctrl+4", lambda: self.show_page("chat")),
            Action("palette", "Search actions", "Ctrl+K", self.open_palette),
            Action("open_folder", "Open a model folder…", "Ctrl+O", self.open_folder),
            Action("rescan", "Look for models again", "F5", self.models_page.rescan),
            Action("queue", "Show the queue of recipes", "Ctrl+Shift+Q", self.open_queue),
            Action("connect", "Connect to a running server…", "Ctrl+Shift+O", self.open_server),
            Action("holders", "Show who holds memory", "Ctrl+Shift+M", self.open_ledger),
            Action("live", "Show or hide the Live panel", "Ctrl+L", lambda: self.dock.toggle()),
            Action("live_picture", "Save the Live panel as a picture…", "", self.live_panel.export.ask_picture),
            Action("live_csv", "Save the live figures as CSV…", "", self.live_panel.export.ask_csv),
            Action("logs", "Show or hide the logs", "Ctrl+J", lambda: self.drawer.toggle()),
            Action("language", "Switch language", "Ctrl+Shift+L", self.switch_language),
            Action("theme", "Switch between dark and light", "Ctrl+Shift+T", self.switch_theme),
            Action("settings", "Settings", "Ctrl+,", self.open_settings),
            Action("quit", "Quit", "Ctrl+Q", self.close),
        )

    def begin(self) -> None:
        """Start what needs the loop: the device readings, the pages' own, the look for leftovers."""
        self._begun = True
        self.tasks.start(monitor.device_samples(self._on_devices))
        self.tasks.start(self.banners.look_for_leftovers())
        for page in self.pages.values():
            page.arrive()

    def show_page(self, key: str) -> None:
        """Go to a station by its key."""
        if self._begun and key == "models" and not self.models_page.isVisible():
            self.models_page.rescan()  # a job, the terminal or the file manager may have brought a model
        self.stack.setCurrentWidget(self.pages[key])
        self.rail.show_picked(key)
        self.dock.setVisible(key in WITH_LIVE)
        self.pages[key].setFocus()

    def open_folder(self) -> None:
        self.show_page("models")
        self.models_page.open_folder()

    def open_queue(self) -> None:
        self.show_page("quantize")
        self.quantize_page.queue_box.show()

    def open_server(self) -> None:
        self.show_page("serve")
        self.serve_page.open_server()

    def open_ledger(self) -> None:
        self.ledger_box.open_below(self.strip.holders_button)

    def open_palette(self) -> None:
        self.palette_box.open()

    def open_settings(self) -> None:
        dialog = SettingsDialog(self.settings, self.tasks, self)
        dialog.changed.connect(self._on_setting)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def switch_language(self) -> None:
        self.settings.language = "en" if words.language() == "zh_CN" else "zh_CN"
        self._on_setting("language")

    def switch_theme(self) -> None:
        self.settings.theme = "light" if theme.tokens().scheme == "dark" else "dark"
        self._on_setting("theme")

    # -- closing -----------------------------------------------------------------------------------------------

    def closeEvent(self, event) -> None:
        """Never closes here: either asks, or lets the loop end everything and leave."""
        event.ignore()
        if self.closed.is_set() or self.question is not None:
            return
        losses = [loss for page in self.pages.values() if (loss := page.would_lose())]
        if not losses:
            self.leave()
            return
        self.question = ClosingQuestion(self, losses, self.leave)
        self.question.destroyed.connect(self._on_answered)
        self.question.open()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.palette_box.place()
        self.ledger_box.place()

    def _on_answered(self) -> None:
        self.question = None

    def leave(self) -> None:
        """Close without a question; the application ends all tasks after this."""
        if not self.closed.is_set():
            self._remember()
            self.hide()
            self.closed.set()

    # -- parts -------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        self.rail = Rail(STATIONS)
        self.strip = DeviceStrip()
        self.ledger_box = LedgerBox(self.tasks, self)
        self.drawer = LogDrawer(self._statuses, self._logs)
        self.stack = QStackedWidget()
        for page in self.pages.values():
            self.stack.addWidget(page)
        self.banners = Banners(self.tasks, self.notices)
        middle = QWidget()
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.banners)
        column.addWidget(self.stack, 1)
        self.dock = LiveDock(self.live_panel)
        across = QHBoxLayout()
        across.setSpacing(0)
        across.addWidget(middle, 1)
        across.addWidget(self.dock)
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self.strip)
        right.addLayout(across, 1)
        right.addWidget(self.drawer)
        whole = QWidget()
        whole.setObjectName("ground")
        row = QHBoxLayout(whole)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.rail)
        row.addLayout(right, 1)
        self.setCentralWidget(whole)
        self.setMinimumSize(1024, 640)

    def _connect(self) -> None:
        self.models_page.quantize_picked.connect(self._on_quantize)
        self.models_page.serve_picked.connect(self._on_serve)
        self.quantize_page.models_wanted.connect(lambda: self.show_page("models"))
        self.quantize_page.made.connect(self.models_page.list_also)
        self.quantize_page.finished.connect(self._on_quantized)
        self.serve_page.engine_known.connect(self.models_page.show_engine)
        self.serve_page.chat_asked.connect(lambda: self.show_page("chat"))
        self.chat_page.serve_asked.connect(lambda: self.show_page("serve"))
        self.chat_page.replied.connect(self.live_panel.add_reply)
        self.engines.unloaded.connect(self._on_unloaded)
        self.engines.changed.connect(lambda side: self.strip.show_state(side, self.engines.state(side)))
        self.rail.picked.connect(self.show_page)
        self.rail.settings_asked.connect(self.open_settings)
        self.strip.palette_asked.connect(self.open_palette)
        self.strip.holders_asked.connect(self.open_ledger)
        self.strip.language_asked.connect(self.switch_language)

    def _on_devices(self, sample: DeviceSample) -> None:
        self.strip.show_sample(sample)
        self.live_panel.add_devices(sample)

    def _on_quantize(self, model: Model) -> None:
        self.show_page("quantize")
        self.quantize_page.open(model)

    def _on_serve(self, model: Model) -> None:
        self.show_page("serve")
        self.serve_page.open(model)

    def _on_quantized(self, original: Path, result: Path) -> None:
        self.show_page("serve")
        self.serve_page.open_pair(original, result)

    def _on_unloaded(self, side: str, minutes: int) -> None:
        values = {"name": self.engines.profile(side).served_name, "minutes": minutes}
        self.notices.info(
            Sentence("{name} had nothing to do for {minutes} {minutes:minute|minutes} and is unloaded.", values),
            Sentence("Start on its card brings it back as it was; what is typed in Chat stays."),
        )

    def _on_setting(self, name: str) -> None:
        if name == "language":
            language.choose(self.settings.language)
        if name == "theme":
            theme.apply(QApplication.instance(), self.settings.theme)
        if name == "model_folders":
            self.models_page.rescan()
        try:
            stored.save(self.settings)
        except WorkbenchError as error:
            self.notices.tell(error)

    def _choices(self) -> list[Choice]:
        """For the palette: the action table and the primary action of the page in view."""
        choices = []
        page = self.stack.currentWidget()
        if page.primary is not None and page.primary.isVisible() and page.primary.isEnabled():
            choices.append(Choice(page.primary.text(), "", "", page.primary.click))
        for line in self.table:
            if line.id != "palette":
                choices.append(Choice(say(line.title), line.title, line.shortcut, line.method))
        return choices

    def _statuses(self):
        return [status for page in self.pages.values() for status in page.statuses()]

    def _logs(self):
        own = LogSource(Sentence("Lathe"), paths.home() / "lathe.log")
        return [source for page in self.pages.values() for source in page.logs()] + [own]

    def _restore(self) -> None:
        kept = place.restore(self)
        self.dock.open(kept.get("live") != "folded")
        self.drawer.open(kept.get("drawer") == "open")
        self.show_page(kept["page"] if kept.get("page") in self.pages else STATIONS[0].key)

    def _remember(self) -> None:
        shown = next(key for key, page in self.pages.items() if page is self.stack.currentWidget())
        words_of = {True: "open", False: "folded"}
        place.remember(self, live=words_of[self.dock.wanted], drawer=words_of[self.drawer.opened], page=shown)
