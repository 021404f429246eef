"""The queue of recipes as a dialog: what waits, what came of the rest, and KL against size."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QDialog, QHBoxLayout, QHeaderView, QTreeWidget, QTreeWidgetItem, QVBoxLayout, QWidget

from ui import icons, language, theme
from ui.frames import Frames
from ui.plots.size_scatter import SizeScatter
from ui.quantize.queue_run import QueueRun
from ui.widgets import Card, button, label
from ui.widgets.label import restyle
from workbench import figures, overnight
from workbench.draft import Draft
from workbench.overnight import Entry
from workbench.words import Sentence, say

STATE, FIRST_NUMBER = 2, 3
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class QueueBox(QDialog):
    """Stays beside the window; `opener` is the button that shows it.

    `show_draft` says what "Add" would add, and whether the queue may start now.
    """

    def __init__(self, parent: QWidget, queue: QueueRun):
        super().__init__(parent)
        self._queue, self._draft, self._entries = queue, None, list[Entry]()
        self._frames = Frames(self)
        self._barred = self._stops = False
        language.bind(self.setWindowTitle, "Queue")
        self.opener = button("Queue", self.show, kind="quiet", icon="play-list-2-line")
        language.bind(self.opener.setToolTip, "Several recipes, one after the other, such as over night")
        self.add = button("Add this recipe", self._add, icon="add-line")
        self.rows = QTreeWidget()
        self.rows.setRootIsDecorated(False)
        self.rows.setColumnCount(7)
        language.bind(self.rows.setAccessibleName, "Queue")
        self.rows.header().setStretchLastSection(False)
        for column in range(7):
            mode = QHeaderView.ResizeMode.Stretch if column == STATE else QHeaderView.ResizeMode.ResizeToContents
            self.rows.header().setSectionResizeMode(column, mode)
        self.rows.currentItemChanged.connect(self._enable)
        self.earlier = button("Earlier", lambda: self._move(-1), kind="quiet", icon="arrow-up-line")
        self.later = button("Later", lambda: self._move(1), kind="quiet", icon="arrow-down-line")
        self.remove = button("Remove", self._remove, kind="quiet", icon="delete-bin-line")
        self.report = button("Open report", self._report, kind="quiet", icon="file-chart-line")
        self.page = button("Open as a page", queue.open_page, kind="quiet", icon="external-link-line")
        self.empty = label(
            "Nothing is queued. Add the recipe that the page shows; each is quantized and measured after the one "
            "before.", "muted", wrap=True,
        )  # fmt: skip
        self._picture, self.plot = Card(), SizeScatter()
        self.start = button("Start", self._start, kind="primary", icon="play-line")
        self.words = label(role="caption", wrap=True)
        self._lay_out()
        queue.changed.connect(self._count)
        queue.changed.connect(self._frames.touch)
        queue.moved.connect(self._frames.touch)
        language.changed.connect(self._frames.touch)
        theme.changed.connect(self._frames.touch)
        self.resize(860, 640)
        self._count()
        self.redraw()

    def show_draft(self, draft: Draft, running: bool) -> None:
        """`running`: the page's own quantization is at work, and the queue must wait for it."""
        self._draft, self._barred = draft, running
        self._frames.touch()

    def showEvent(self, event) -> None:
        self._queue.refresh()
        self.redraw()
        super().showEvent(event)

    def redraw(self) -> None:
        """Draw the list, the picture and what can be done."""
        self._fill()
        self._enable()
        draft = self._draft
        free = bool(draft and draft.plan and all(found.code == "output_exists" for found in draft.plan.conflicts))
        self.add.setEnabled(free)
        language.show(self.words.setText, self._waits_for() or "")
        stops = self._queue.going
        language.bind(self.start.setText, "Stop" if stops else "Start")
        language.bind(self.start.setAccessibleName, "Stop" if stops else "Start")
        if stops != self._stops:
            self._stops = stops
            restyle(self.start, "kind", "plain" if stops else "primary")
            icons.bind(self.start.setIcon, *(("stop-circle-line", "text") if stops else ("play-line", "ground")))
        self.start.setEnabled(stops or (bool(self._queue.line.waiting) and not self._barred))

    @property
    def chosen(self) -> Entry | None:
        """The entry whose row is current."""
        row = self.rows.indexOfTopLevelItem(self.rows.currentItem()) if self.rows.currentItem() else -1
        return self._entries[row] if 0 <= row < len(self._entries) else None

    def choose(self, entry: Entry) -> None:
        self.rows.setCurrentItem(self.rows.topLevelItem(self._entries.index(entry)))

    def _count(self) -> None:
        count = len(self._queue.line.waiting) + bool(self._queue.line.current)
        for setter in (self.opener.setText, self.opener.setAccessibleName):
            language.bind(setter, "Queue · {count}" if count else "Queue", count=count)

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(8)
        head = QHBoxLayout()
        head.addWidget(label("Queue", "section"))
        head.addStretch(1)
        head.addWidget(self.add)
        column.addLayout(head)
        column.addWidget(self.empty)
        column.addWidget(self.rows, 1)
        on_row = QHBoxLayout()
        on_row.setSpacing(4)
        for control in (self.earlier, self.later, self.remove):
            on_row.addWidget(control)
        on_row.addStretch(1)
        for control in (self.report, self.page):
            on_row.addWidget(control)
        column.addLayout(on_row)
        self._picture.body.addWidget(self.plot)
        column.addWidget(self._picture, 1)
        foot = QHBoxLayout()
        foot.setSpacing(8)
        foot.addWidget(self.words, 1)
        close = button("Close", self.close)
        foot.addWidget(close)
        foot.addWidget(self.start)
        column.addLayout(foot)
        for control in (self.add, self.earlier, self.later, self.remove, self.report, self.page, close):
            control.setAutoDefault(False)

    def _fill(self) -> None:
        entries = list(self._queue.line.entries)
        if [id(entry) for entry in entries] != [id(entry) for entry in self._entries]:
            chosen = self.chosen
            self.rows.clear()
            self._entries = entries
            self.rows.addTopLevelItems([QTreeWidgetItem() for _ in entries])
            if chosen in entries:
                self.choose(chosen)
        heads = (say("Recipe"), say("Model"), say("State"), say("Bits"), say("Size"), "KL", say("Time"))
        self.rows.setHeaderLabels(list(heads))
        for column in range(FIRST_NUMBER, len(heads)):
            self.rows.headerItem().setTextAlignment(column, RIGHT)
        for row, entry in enumerate(entries):
            self._show(self.rows.topLevelItem(row), entry)
        self.empty.setVisible(not entries)
        self.rows.setVisible(bool(entries))

    def _show(self, item: QTreeWidgetItem, entry: Entry) -> None:
        ended, worn = entry.outcome, theme.tokens()
        texts = [entry.recipe.name, entry.model.name, str(self._state(entry)), "", "", "", ""]
        if ended:
            texts[FIRST_NUMBER:] = (
                figures.number(ended.average_bits), figures.bytes_of(ended.size), figures.number(ended.kl),
                figures.clock(ended.seconds),
            )  # fmt: skip
        for column, text in enumerate(texts):
            item.setText(column, text)
            if column >= FIRST_NUMBER:
                item.setTextAlignment(column, RIGHT)
        tone = worn.rejected if ended and ended.failure else worn.accepted if ended else worn.muted
        item.setForeground(STATE, QColor(worn.text if entry is self._queue.line.current else tone))
        item.setToolTip(STATE, f"{texts[STATE]}\n{entry.output}")

    def _state(self, entry: Entry) -> Sentence:
        if entry.outcome:
            failure = entry.outcome.failure
            return Sentence("✕ failed: {reason}", {"reason": failure}) if failure else Sentence("✓ done")
        run = self._queue.run
        if entry is not self._queue.line.current:
            return Sentence("waiting")
        if run is None or not run.stage:
            return Sentence("▸ at work")
        return Sentence("▸ {stage}, {share}", {"stage": Sentence(run.stage), "share": figures.percent(run.share)})

    def _waits_for(self) -> Sentence | None:
        if self._queue.going:
            return Sentence("What is stopped waits again; its finished blocks are not made twice.")
        if self._barred and self._queue.line.waiting:
            return Sentence("A quantization is at work: the queue can start when it has ended.")
        if self._draft and self._draft.plan and not self.add.isEnabled():
            return Sentence("The recipe on the page cannot run like this; solve its conflicts there, then add it.")
        return None

    def _enable(self, *_items: object) -> None:
        entry, line = self.chosen, self._queue.line
        shown = entry or next((each for each in line.entries if each.outcome), None)
        # Sizes and KL of two models say nothing of each other.
        self.plot.show_points(overnight.points(each for each in line.entries if shown and each.model == shown.model))
        self._picture.setVisible(bool(self.plot.points))
        waiting = line.waiting
        at = waiting.index(entry) if entry in waiting else -1
        self.earlier.setEnabled(at > 0)
        self.later.setEnabled(0 <= at < len(waiting) - 1)
        self.remove.setEnabled(entry is not None and entry is not line.current)
        self.report.setEnabled(bool(entry and entry.outcome and entry.outcome.job))
        self.page.setEnabled(any(each.outcome for each in line.entries))

    def _add(self) -> None:
        self._queue.add(self._draft)
        self.redraw()
        self.choose(self._entries[-1])

    def _move(self, step: int) -> None:
        if self.chosen:
            self._queue.move(self.chosen, step)

    def _remove(self) -> None:
        if self.chosen:
            self._queue.remove(self.chosen)

    def _report(self) -> None:
        if self.chosen:
            self._queue.open_report(self.chosen)

    def _start(self) -> None:
        if self._queue.going:
            self._queue.stop()
        elif not self._barred:
            self._queue.start()
