"""The models as a table: one row each, its fit on the device as badges."""

from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QStyle, QStyledItemDelegate, QTableView

from ui import language, theme
from ui.widgets.stored_weights import precision_of
from workbench import figures
from workbench.catalog.capacity import Capacity
from workbench.catalog.folder import Model, Unreadable
from workbench.engine.formats import Refusal
from workbench.words import Sentence, say

HEADS = (
    Sentence("Model"), Sentence("Parameters"), Sentence("Size"), Sentence("Context"), Sentence("Weights"),
    Sentence("Fits"),
)  # fmt: skip
TYPE, FITS = 4, 5
SPARE = (1, 3)  # what the details tell too, where there is no room for it here
NARROW = 640
PILL = 18


@dataclass(frozen=True)
class Row:
    """A model, or a folder that could not be read, and whether it fits by precision ("FP16", "INT8", "INT4").

    `refused` is why the installed engine does not serve its weights.
    """

    entry: Model | Unreadable
    fits: dict[str, Capacity] = field(default_factory=dict)
    refused: Refusal | None = None

    @property
    def folder(self) -> Path:
        return self.entry.folder

    @property
    def model(self) -> Model | None:
        return self.entry if isinstance(self.entry, Model) else None

    def cells(self) -> tuple[str, ...]:
        if (model := self.model) is None:
            return (self.folder.name, *[figures.DASH] * 4, say("cannot be read"))
        return (
            model.name,
            figures.count(model.parameters),
            figures.bytes_of(model.weight_bytes),
            figures.tokens(model.context),
            _type(model),
            " ".join(text for text, _ in self.badges()),
        )

    def badges(self) -> list[tuple[str, str]]:
        """Text and tone: "FP16 ●" where it fits, "FP16 ✕ 15.2 > 11.6" where it does not, problems first."""
        if (model := self.model) is None:
            return [(say("cannot be read"), "rejected")]
        badges = []
        if not model.can_serve or self.refused:
            badges.append((say("cannot be served"), "rejected"))
        for precision, capacity in self.fits.items():
            if capacity.fits:
                badges.append((f"{precision} ●", "original" if precision == "FP16" else "quantized"))
            else:
                needed = figures.more_than(capacity.needed, capacity.available)
                badges.append((f"{precision} ✕ {needed}", "muted"))
        return badges


def _type(model: Model) -> str:
    """Short, so that names keep their room ("INT4 g32/64"): the tooltip and the details tell all of it."""
    if (packed := model.quantization) is None:
        return model.dtype
    if not packed.bits:
        return str(packed.sentence)
    sizes = "/".join(str(size) for size in packed.group_sizes if size > 0)
    return f"{precision_of(model)} g{sizes}" if sizes else precision_of(model)


class ModelsTable(QTableView):
    """Shows rows; which one is current is known by its folder, so that a new scan keeps it."""

    def __init__(self):
        super().__init__()
        self.rows = _Rows()
        self.setModel(self.rows)
        self.setItemDelegateForColumn(FITS, _Badges(self))
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # names of one family begin alike
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(36)
        head = self.horizontalHeader()
        head.setHighlightSections(False)
        head.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        head.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        head.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        head.setMinimumSectionSize(72)
        language.bind(self.setAccessibleName, "Models")
        theme.changed.connect(self.viewport().update)
        language.changed.connect(self.rows.retell)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for column in SPARE:
            self.setColumnHidden(column, self.width() < NARROW)

    def show_rows(self, rows: list[Row]) -> None:
        kept = self.current()
        self.rows.replace(rows)
        self.pick(kept.folder if kept else None)

    def current(self) -> Row | None:
        index = self.currentIndex()
        return self.rows.rows[index.row()] if index.isValid() else None

    def pick(self, folder: Path | None) -> None:
        """Make the model of `folder` current, the first one where it is not listed."""
        for number, row in enumerate(self.rows.rows):
            if folder is not None and row.folder.resolve() == folder.resolve():
                self.selectRow(number)
                return
        if self.rows.rows:
            self.selectRow(0)


class _Rows(QAbstractTableModel):
    def __init__(self):
        super().__init__()
        self.rows: list[Row] = []

    def replace(self, rows: list[Row]) -> None:
        self.beginResetModel()
        self.rows = rows
        self.endResetModel()

    def retell(self) -> None:
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(HEADS) - 1)
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, len(HEADS) - 1))

    def rowCount(self, _parent=None) -> int:
        return len(self.rows)

    def columnCount(self, _parent=None) -> int:
        return len(HEADS)

    def headerData(self, section, orientation, role=Qt.ItemDataRole.DisplayRole):
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return str(HEADS[section])
        return None

    def data(self, index: QModelIndex, role=Qt.ItemDataRole.DisplayRole):
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return row.cells()[index.column()]
        if role == Qt.ItemDataRole.ToolTipRole:
            if index.column() == FITS and row.fits:
                return "\n".join(f"{name}: {capacity.sentence}" for name, capacity in row.fits.items())
            if index.column() == TYPE and row.model and row.model.quantization:
                return str(row.model.quantization.description)
            return f"{row.cells()[0]}\n{row.folder}" if index.column() == 0 else str(row.folder)
        if role == Qt.ItemDataRole.ForegroundRole and row.model is None:
            return QColor(theme.tokens().muted)
        return None


class _Badges(QStyledItemDelegate):
    """Paints a row's badges as pills."""

    def sizeHint(self, option, index) -> QSize:
        metrics = QFontMetrics(_small(option.font))
        texts = [text for text, _ in index.model().rows[index.row()].badges()]
        return QSize(16 + sum(metrics.horizontalAdvance(text) + 22 for text in texts), 36)

    def paint(self, painter: QPainter, option, index) -> None:
        worn = theme.tokens()
        picked = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if picked:
            painter.fillRect(option.rect, QColor(worn.picked))
            painter.setBrush(QColor(worn.surface))  # colours are told from the surface
        painter.setFont(_small(option.font))
        x, y = option.rect.left() + 8, option.rect.center().y() - PILL / 2 + 0.5
        for text, tone in index.model().rows[index.row()].badges():
            width = painter.fontMetrics().horizontalAdvance(text) + 16
            pill = QRectF(x + 0.5, y, width, PILL)
            colour = QColor(getattr(worn, tone))
            painter.setPen(QPen(colour if tone != "muted" else QColor(worn.muted), 1))
            painter.drawRoundedRect(pill, PILL / 2, PILL / 2)
            painter.drawText(pill, Qt.AlignmentFlag.AlignCenter, text)
            x += width + 6
        painter.restore()


def _small(font):
    font.setPixelSize(11)
    return font
