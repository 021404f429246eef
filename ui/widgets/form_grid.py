"""A form of rows: what a field is called at the left, the field at the right."""

from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from ui import language
from ui.widgets.label import label
from ui.widgets.model_picker import ModelPicker

LABELS = 116


class FormGrid(QGridLayout):
    """`add` rows; `show_row` hides one together with its label."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[QWidget, QLabel] = {}
        self.setContentsMargins(0, 0, 0, 0)
        self.setHorizontalSpacing(12)
        self.setVerticalSpacing(6)
        self.setColumnMinimumWidth(0, LABELS)
        self.setColumnStretch(1, 1)

    def add(self, template: str, field: QWidget) -> None:
        name = label(template, "muted", wrap=True)
        row = self.rowCount()
        self.addWidget(name, row, 0)
        self.addWidget(field, row, 1)
        self._names[field] = name
        if not isinstance(field, ModelPicker):  # it names its own parts
            language.bind(field.setAccessibleName, template)

    def show_row(self, field: QWidget, shown: bool) -> None:
        for widget in (self._names[field], field):
            widget.setVisible(shown)
