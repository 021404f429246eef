"""The button that saves what the Live panel shows: as pictures, or its figures as CSV."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QFileDialog, QWidget

from ui import language
from ui.plots import rendering
from ui.tasks import Tasks
from ui.widgets import label
from ui.widgets.menu_button import MenuButton
from workbench import named_files
from workbench.words import Sentence, say

TOLD_MS = 8000

Part = tuple[Sentence, QWidget]


class ExportMenu(MenuButton):
    """`parts` are what can be saved as a picture with their names, the first of them the whole.

    `names` are the models by side, asked for when something is saved, and so is `table`: it returns what makes the CSV
    of this moment aside. `draw` is called before a picture, for parts that are not seen now. `told` is the label that
    says what was written.
    """

    def __init__(
        self,
        tasks: Tasks,
        parts: Sequence[Part],
        names: Callable[[], dict[str, str]],
        table: Callable[[], Callable[[], str]],
        draw: Callable[[], None],
    ):
        super().__init__(Sentence("Save these figures"), "download-2-line", self._fill)
        self._tasks, self._parts, self._names, self._table, self._draw = tasks, parts, names, table, draw
        self.dialog: QFileDialog | None = None
        self.told = label(role="caption", wrap=True)
        self.told.hide()
        self._told_long = QTimer(self, interval=TOLD_MS, singleShot=True)
        self._told_long.timeout.connect(self.told.hide)

    def ask_picture(self, part: Part | None = None) -> None:
        """Ask where the picture of a part, by default of the whole panel, shall be."""
        part = part or self._parts[0]
        self._ask(Sentence("Save as a picture"), "png", lambda path: self.save_picture(part, path))

    def ask_csv(self) -> None:
        """Ask where the figures shall be."""
        self._ask(Sentence("Save the figures as CSV"), "csv", self.save_csv)

    def save_picture(self, part: Part, path: Path) -> None:
        """Write the part as it is now."""
        name, widget = part
        self._draw()
        title = f"Lathe · {name} · {datetime.now():%Y-%m-%d %H:%M}"
        image = rendering.picture(widget, title, self._names())
        self._tasks.start(self._write(path, lambda: rendering.png(image)))

    def save_csv(self, path: Path) -> None:
        """Write all figures that are kept, of all engines in one table."""
        table = self._table()
        self._tasks.start(self._write(path, lambda: table().encode()))

    async def _write(self, path: Path, made: Callable[[], bytes]) -> None:
        await asyncio.to_thread(lambda: named_files.write_bytes(made(), path))
        language.show(self.told.setText, Sentence("Written to {path}", {"path": str(path)}))
        self.told.show()
        self._told_long.start()

    def _ask(self, title: Sentence, ending: str, save: Callable[[Path], None]) -> None:
        dialog = QFileDialog(self.window(), str(title), filter=f"*.{ending}")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setFileMode(QFileDialog.FileMode.AnyFile)
        dialog.setDefaultSuffix(ending)
        dialog.selectFile(f"lathe-{datetime.now():%Y%m%d-%H%M%S}.{ending}")
        dialog.fileSelected.connect(lambda path: save(Path(path)))
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def _fill(self) -> None:
        self.lines.clear()
        self.lines.addAction(say("The whole panel as a picture…"), self.ask_picture)
        self.lines.addAction(say("All figures as CSV…"), self.ask_csv)
        self.lines.addSeparator()
        for part in self._parts[1:]:
            name, widget = part
            if widget.isVisible():
                self.lines.addAction(say("{part} as a picture…", part=name), lambda part=part: self.ask_picture(part))
