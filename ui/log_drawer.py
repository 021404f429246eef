"""The line at the foot of the window: what runs and how long it takes still; opened, the logs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QComboBox, QFrame, QHBoxLayout, QPlainTextEdit, QProgressBar, QVBoxLayout, QWidget

from ui import icons, language, theme
from ui.widgets.button import button
from ui.widgets.label import label
from workbench import figures
from workbench.words import Sentence

TAIL_BYTES = 64_000
LOOK_MS = 500


@dataclass(frozen=True)
class Status:
    """Work in progress: a sentence, the share done (None: unknown) and the seconds left (None: unknown)."""

    sentence: Sentence
    share: float | None = None
    left_s: float | None = None


@dataclass(frozen=True)
class LogSource:
    """A log that the drawer can show; `title` is a template or a name."""

    title: Sentence
    path: Path


class LogDrawer(QFrame):
    """Asks `statuses` and `logs` twice a second; it reads a log only while open."""

    def __init__(self, statuses: Callable[[], Iterable[Status]], logs: Callable[[], Iterable[LogSource]]):
        super().__init__()
        self.setObjectName("drawer")
        self._statuses, self._logs = statuses, logs
        self._shown: tuple[Path, int, int] | None = None
        self._sources: list[LogSource] = []
        self.line = label(role="muted")
        self.left = label(role="caption")
        self.bar = QProgressBar(maximum=1000, textVisible=False)
        self.bar.setFixedWidth(160)
        language.bind(self.bar.setAccessibleName, "Progress of the running job")
        self.opener = button("Logs", self.toggle, kind="quiet", icon="arrow-up-s-line")
        self.opener.setCheckable(True)
        self._pick = QComboBox()
        language.bind(self._pick.setAccessibleName, "Which log")
        self._pick.setMinimumWidth(200)
        self._pick.hide()
        self._pick.currentIndexChanged.connect(self._on_picked)
        self._text = QPlainTextEdit(readOnly=True)
        self._text.setObjectName("log")
        self._text.setFont(theme.mono())
        self._text.setMaximumBlockCount(5000)
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        language.bind(self._text.setAccessibleName, "Log")
        self._inside = QWidget()
        self._inside.setFixedHeight(220)
        inside = QVBoxLayout(self._inside)
        inside.setContentsMargins(0, 0, 0, 8)
        inside.addWidget(self._text, 1)
        self._inside.hide()
        top = QHBoxLayout()
        top.setSpacing(12)
        for widget in (self.line, self.bar, self.left):
            top.addWidget(widget)
        top.addStretch(1)
        top.addWidget(self._pick)
        top.addWidget(self.opener)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(16, 2, 8, 2)
        whole.setSpacing(4)
        whole.addLayout(top)
        whole.addWidget(self._inside)
        self._timer = QTimer(self, interval=LOOK_MS)
        self._timer.timeout.connect(self.look)
        self._timer.start()
        language.changed.connect(self.look)
        self.look()

    @property
    def opened(self) -> bool:
        return not self._inside.isHidden()

    def open(self, opened: bool = True) -> None:
        self._inside.setVisible(opened)
        self._pick.setVisible(opened)
        self.opener.setChecked(opened)
        icons.bind(self.opener.setIcon, "arrow-down-s-line" if opened else "arrow-up-s-line")
        self.look()

    def toggle(self) -> None:
        self.open(not self.opened)

    def look(self) -> None:
        """Show what runs now, and what the chosen log says when open."""
        running = list(self._statuses())
        first = running[0] if running else None
        if first is None:
            language.bind(self.line.setText, "Nothing is running.")
        elif len(running) == 1:
            language.show(self.line.setText, first.sentence)
        else:
            others = len(running) - 1
            language.bind(self.line.setText, "{first} · {others} more", first=first.sentence, others=others)
        share = first.share if first else None
        self.bar.setVisible(share is not None)
        if share is not None:
            self.bar.setValue(round(share * 1000))
        self.left.setVisible(bool(first and first.left_s is not None))
        if first and first.left_s is not None:
            language.bind(self.left.setText, "about {time} left", time=figures.clock(first.left_s))
        if self.opened:
            self._list_logs()
            self._read()

    def _list_logs(self) -> None:
        sources = list(self._logs())
        if [str(source.title) for source in sources] == [self._pick.itemText(i) for i in range(self._pick.count())]:
            self._sources = sources
            return
        chosen = self._pick.currentText()
        self._sources = sources
        self._pick.blockSignals(True)
        self._pick.clear()
        self._pick.addItems([str(source.title) for source in sources])
        self._pick.setCurrentIndex(max(0, self._pick.findText(chosen)))
        self._pick.blockSignals(False)

    def _on_picked(self) -> None:
        self._shown = None
        self.look()

    def _read(self) -> None:
        """Show the end of the log; the view follows only a reader who is at the end."""
        index = self._pick.currentIndex()
        if not 0 <= index < len(self._sources):
            return
        path = self._sources[index].path
        try:
            stat = path.stat()
            mark = (path, stat.st_size, stat.st_mtime_ns)
            if mark == self._shown:
                return
            with path.open("rb") as file:
                file.seek(max(0, stat.st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            mark, text = (path, 0, 0), ""
        bar = self._text.verticalScrollBar()
        at_end, where = bar.value() >= bar.maximum() - 2, bar.value()
        self._text.setPlainText(text)
        bar.setValue(bar.maximum() if at_end or self._shown is None else where)
        self._shown = mark
