"""What of a window cannot be read: words that are cut at an edge, parts outside their parent or over each other."""

from collections.abc import Iterator

from PySide6.QtWidgets import QAbstractButton, QAbstractScrollArea, QComboBox, QLabel, QSplitter, QWidget

from ui.widgets.elided import Elided
from ui.widgets.eliding_combo import ElidingCombo
from ui.widgets.slot_tab import SlotTab

SELF_FITTING = (Elided, ElidingCombo, SlotTab)  # end in an ellipsis and tell the whole in their tooltip


def faults(window: QWidget) -> list[str]:
    """A sentence for each."""
    return [fault for widget in window.findChildren(QWidget) if widget.isVisible() for fault in _of(widget)]


def _of(widget: QWidget) -> Iterator[str]:
    parent = widget.parentWidget()
    where = f"{type(parent).__name__}: {type(widget).__name__}"
    if isinstance(widget, SELF_FITTING) or widget.window() is not parent.window():
        return
    if isinstance(widget, QLabel) and widget.text():
        wanted, height = widget.sizeHint(), widget.heightForWidth(widget.width())
        if widget.wordWrap() and height > widget.height() + 1:
            yield f"{where} needs {height} px of height, has {widget.height()}: {widget.text()}"
        if not widget.wordWrap() and wanted.width() > widget.width() + 1:
            yield f"{where} needs {wanted.width()} px, has {widget.width()}: {widget.text()}"
    if isinstance(widget, QAbstractButton) and widget.text() and widget.sizeHint().width() > widget.width() + 1:
        yield f"{where} needs {widget.sizeHint().width()} px, has {widget.width()}: {widget.text()}"
    if isinstance(widget, QComboBox) and not widget.isEditable():
        needed = widget.fontMetrics().horizontalAdvance(widget.currentText()) + 30  # frame, margin and arrow
        if needed > widget.width():
            yield f"{where} needs {needed} px, has {widget.width()}: {widget.currentText()}"
    if isinstance(widget, QAbstractScrollArea) and widget.horizontalScrollBar().isVisible():
        yield f"{where} scrolls to the side"
    if isinstance(widget, QAbstractScrollArea | QSplitter) or widget.layout() is None:
        return
    parts = [widget.layout().itemAt(at).widget() for at in range(widget.layout().count())]
    parts = [part for part in parts if part is not None and part.isVisible()]
    for at, part in enumerate(parts):
        if not widget.rect().adjusted(-1, -1, 1, 1).contains(part.geometry()):
            yield f"{type(widget).__name__}: {type(part).__name__} stands outside"
        for other in parts[at + 1 :]:
            if part.geometry().intersects(other.geometry()):
                yield f"{type(widget).__name__}: {type(part).__name__} lies over {type(other).__name__}"
