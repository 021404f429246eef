"""The window: its pages in a row, the connections between them, the action table, and closing."""

import asyncio

from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QMainWindow,
    QMenu,
    QMessageBox,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from ui import actions, language, theme
from ui.actions import Action
from ui.device_strip import DeviceStrip
from ui.log_drawer import LogDrawer, LogSource
from ui.models_page import ModelsPage
from ui.notices import Notice, Notices
from ui.page import Page
from ui.palette import Choice, Palette
from ui.rail import Rail, Station
from ui.settings_dialog import SettingsDialog
from ui.tasks import Tasks
from ui.widgets import Banner, button
from workbench import leftovers, paths, words
from workbench import settings as stored
from workbench.engine import monitor
from workbench.errors import WorkbenchError
from workbench.settings import Settings
from workbench.words import Sentence, say

STATIONS = (Station("models", "Models", "stack-line"),)
BANNERS = 3  # more would push the page away; the log keeps them all


class MainWindow(QMainWindow):
    """Stands without a loop for pictures; `begin` starts what needs one. `closed` is set when it may go."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.closed = asyncio.Event()
        self.notices = Notices(self)
        self.tasks = Tasks(self.notices.tell)
        self.models_page = ModelsPage(settings, self.tasks, self.notices)
        self.pages: dict[str, Page] = {"models": self.models_page}
        self._question: QMessageBox | None = None
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
            Action("palette", "Search actions", "Ctrl+K", self.open_palette),
            Action("open_folder", "Open a model folder…", "Ctrl+O", self.open_folder),
            Action("rescan", "Look for models again", "F5", self.models_page.rescan),
            Action("logs", "Show or hide the logs", "Ctrl+J", lambda: self.drawer.toggle()),
            Action("language", "Switch language", "Ctrl+Shift+L", self.switch_language),
            Action("theme", "Switch between dark and light", "Ctrl+Shift+T", self.switch_theme),
            Action("settings", "Settings", "Ctrl+,", self.open_settings),
            Action("quit", "Quit", "Ctrl+Q", self.close),
        )

    def begin(self) -> None:
        """Start what needs the loop: the device readings, the pages' own, the look for leftovers."""
        self.tasks.start(monitor.device_samples(self.strip.show_sample))
        self.tasks.start(self._look_for_leftovers())
        for page in self.pages.values():
            page.arrive()

    def show_page(self, key: str) -> None:
        """Go to a station by its key."""
        self.stack.setCurrentWidget(self.pages[key])
        self.rail.show_picked(key)

    def open_folder(self) -> None:
        self.show_page("models")
        self.models_page.open_folder()

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

    # -- telling -----------------------------------------------------------------------------------------------

    def _on_notice(self, notice: Notice) -> None:
        banner = Banner(notice.level, notice.sentence, hint=notice.hint, details=notice.details)
        self._add_banner(banner)

    def _add_banner(self, banner: Banner) -> None:
        while self._banners.count() >= BANNERS:
            self._banners.takeAt(0).widget().deleteLater()
        self._banners.addWidget(banner)

    async def _look_for_leftovers(self) -> None:
        """Offer to end what an earlier run left when it was killed together with its guard."""
        found = await asyncio.to_thread(leftovers.find)
        if not found:
            return

        async def end_them() -> None:
            await asyncio.to_thread(leftovers.end, found)
            self.notices.info(Sentence("The leftovers were ended."))

        end = button("End them", lambda: (banner.dismiss(), self.tasks.start(end_them())))
        banner = Banner(
            "warning",
            Sentence("{count} processes of an earlier run still live and may hold memory.", {"count": len(found)}),
            end,
            hint=", ".join(f"{each.pid} {each.command}" for each in found[:3]),
        )
        self._add_banner(banner)

    # -- closing -----------------------------------------------------------------------------------------------

    def closeEvent(self, event) -> None:
        """Never closes here: either asks, or lets the loop end everything and leave."""
        event.ignore()
        if self.closed.is_set() or self._question is not None:
            return
        losses = [loss for page in self.pages.values() if (loss := page.would_lose())]
        if not losses:
            self.leave()
            return
        self._question = QMessageBox(self)
        self._question.setIcon(QMessageBox.Icon.Question)
        self._question.setWindowTitle("Lathe")
        self._question.setText(say("Close Lathe and end what is running?"))
        self._question.setInformativeText("\n".join(map(str, losses)))
        stay = self._question.addButton(say("Keep working"), QMessageBox.ButtonRole.RejectRole)
        go = self._question.addButton(say("End and close"), QMessageBox.ButtonRole.DestructiveRole)
        self._question.setDefaultButton(stay)
        self._question.setEscapeButton(stay)
        self._question.finished.connect(lambda _code: self._on_answer(self._question.clickedButton() is go))
        self._question.open()

    def _on_answer(self, go: bool) -> None:
        self._question.deleteLater()
        self._question = None
        if go:
            self.leave()

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
        self.drawer = LogDrawer(self._statuses, self._logs)
        self.stack = QStackedWidget()
        for page in self.pages.values():
            self.stack.addWidget(page)
        self._banners = QVBoxLayout()
        self._banners.setContentsMargins(24, 0, 24, 0)
        self._banners.setSpacing(8)
        middle = QWidget()
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 8, 0, 0)
        column.addLayout(self._banners)
        column.addWidget(self.stack, 1)
        self.split = QSplitter(Qt.Orientation.Horizontal)
        self.split.setChildrenCollapsible(False)
        self.split.addWidget(middle)
        self.split.setStretchFactor(0, 1)
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self.strip)
        right.addWidget(self.split, 1)
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
        self.notices.added.connect(self._on_notice)
        self.rail.picked.connect(self.show_page)
        self.rail.settings_asked.connect(self.open_settings)
        self.strip.palette_asked.connect(self.open_palette)
        self.strip.language_asked.connect(self.switch_language)

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

    # -- remembering -------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Stand where the last window stood; on a first run, fill a small screen and no more."""
        kept = _kept()
        if not self.restoreGeometry(kept.value("geometry") or b""):
            screen = self.screen().availableGeometry()
            self.resize(min(1440, screen.width()), min(900, screen.height()))
        if state := kept.value("split"):
            self.split.restoreState(state)
        self.drawer.open(kept.value("drawer") == "open")
        last = kept.value("page")
        self.show_page(last if last in self.pages else STATIONS[0].key)

    def _remember(self) -> None:
        kept = _kept()
        kept.setValue("geometry", self.saveGeometry())
        kept.setValue("split", self.split.saveState())
        kept.setValue("drawer", "open" if self.drawer.opened else "closed")
        kept.setValue("page", next(key for key, page in self.pages.items() if page is self.stack.currentWidget()))
        kept.sync()


def _kept() -> QSettings:
    return QSettings(str(paths.home() / "window.ini"), QSettings.Format.IniFormat)
