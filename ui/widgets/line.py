"""Widgets in a row, as one widget."""

from PySide6.QtWidgets import QHBoxLayout, QWidget


def line(*parts: QWidget | None, spacing: int = 8) -> QWidget:
    """Without margins; None takes the room that is left over."""
    whole = QWidget()
    row = QHBoxLayout(whole)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(spacing)
    for part in parts:
        if part is None:
            row.addStretch(1)
        else:
            row.addWidget(part)
    return whole
