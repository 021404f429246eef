"""The banners between device strip and page: what was told, and offers that wait for an answer."""

import asyncio
from collections.abc import Sequence

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui.notices import Notice, Notices
from ui.tasks import Tasks
from ui.widgets import Banner, button
from workbench import leftovers
from workbench.leftovers import Leftover
from workbench.words import Sentence

MOST = 3  # more would push the page away; the log keeps them all


class Banners(QWidget):
    """The newest are at the bottom; the same sentence is not shown twice."""

    def __init__(self, tasks: Tasks, notices: Notices):
        super().__init__()
        self._tasks, self._notices = tasks, notices
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(24, 8, 24, 0)
        self._column.setSpacing(8)
        notices.added.connect(self._on_notice)
        self.hide()

    @property
    def shown(self) -> list[Banner]:
        return [self._column.itemAt(place).widget() for place in range(self._column.count())]

    def add(self, banner: Banner) -> None:
        for other in self.shown:
            if other.sentence.text() == banner.sentence.text():
                self._remove(other)
        for oldest in self.shown[: 1 - MOST]:
            self._remove(oldest)
        banner.closed.connect(lambda: self._remove(banner))
        self._column.addWidget(banner)
        self.show()

    async def look_for_leftovers(self) -> None:
        """Offer to end what an earlier run left when it was killed together with its guard."""
        found = await asyncio.to_thread(leftovers.find)
        if not found:
            return
        end = button("End them", lambda: (banner.dismiss(), self._tasks.start(self._end(found))))
        sentence = Sentence(
            "Processes of an earlier run still live and may hold memory: {count}.", {"count": len(found)}
        )
        banner = Banner("warning", sentence, end, hint=", ".join(f"{each.pid} {each.command}" for each in found[:3]))
        self.add(banner)

    async def _end(self, found: Sequence[Leftover]) -> None:
        await asyncio.to_thread(leftovers.end, found)
        self._notices.info(Sentence("The leftovers were ended."))

    def _on_notice(self, notice: Notice) -> None:
        self.add(Banner(notice.level, notice.sentence, hint=notice.hint, details=notice.details))

    def _remove(self, banner: Banner) -> None:
        self._column.removeWidget(banner)
        banner.hide()
        banner.deleteLater()
        self.setVisible(self._column.count() > 0)
