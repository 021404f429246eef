"""The part of a profile that says on how many devices, and on which machines, an engine computes."""

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from ui import language
from ui.widgets.form_grid import FormGrid
from ui.widgets.label import label
from ui.widgets.optional_number import MARGINS
from workbench.engine import parallel
from workbench.engine.profile import EXECUTORS, Profile
from workbench.words import Sentence

MOST = 1024
COUNTS = ("tensor_parallel", "pipeline_parallel", "data_parallel")
NAMES = {
    "auto": Sentence("automatic"), "mp": Sentence("processes on this machine"), "ray": Sentence("Ray cluster"),
}  # fmt: skip


class ParallelOptions(QWidget):
    """`changed` after every choice of the user. `fields()` are the profile's."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._missing: Mapping[str, Sentence] = {}
        self._gpus = 0  # none: each part is a process on the processor
        self.counts = {name: self._count() for name in COUNTS}
        self.executor = QComboBox()
        for value in EXECUTORS:
            self.executor.addItem("", value)
        self.address = QLineEdit()
        self.address.setPlaceholderText("machine:6379")
        self._rows = FormGrid()
        self._rows.add("Tensor parallel", self.counts["tensor_parallel"])
        self._rows.add("Pipeline parallel", self.counts["pipeline_parallel"])
        self._rows.add("Data parallel", self.counts["data_parallel"])
        self._rows.add("Executor", self.executor)
        self._rows.add("Ray address", self.address)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addLayout(self._rows)
        self.note = label(role="caption", wrap=True)
        whole.addWidget(self.note)
        self.executor.activated.connect(self._on_changed)
        self.address.textEdited.connect(self._on_changed)
        language.changed.connect(self._speak)
        self._speak()
        self._adapt()

    def fields(self) -> dict[str, Any]:
        """What stands in the form, by the names of the profile's fields."""
        executor = self.executor.currentData()
        return {
            **{name: count.value() for name, count in self.counts.items()},
            "executor": executor,
            "ray_address": self.address.text().strip() if executor == "ray" else "",
        }

    def show_profile(self, profile: Profile) -> None:
        """Fill the form without a word."""
        self.blockSignals(True)
        for name, count in self.counts.items():
            count.setValue(getattr(profile, name))
        self.executor.setCurrentIndex(EXECUTORS.index(profile.executor))
        self.address.setText(profile.ray_address)
        self.blockSignals(False)
        self._adapt()

    def show_missing(self, missing: Mapping[str, Sentence]) -> None:
        """Switch off what this engine cannot take, each with its reason; what is set stays, to be taken back."""
        self._missing = missing
        self._adapt()

    def show_gpus(self, count: int) -> None:
        """How many GPUs an engine sees here, to say at once where they are too few; 0 for a processor."""
        self._gpus = count
        self._adapt()

    @property
    def summary(self) -> Sentence:
        """On how many devices."""
        count = 1
        for each in self.counts.values():
            count *= each.value()
        if self.executor.currentData() == "ray":
            return Sentence("{count} {count:device|devices}, Ray", {"count": count})
        return Sentence("{count} {count:device|devices}", {"count": count})

    def _adapt(self) -> None:
        for name, count in self.counts.items():
            count.setEnabled(name not in self._missing or count.value() > 1)
            count.setToolTip(str(self._missing.get(name, "")))
        self.executor.setEnabled("executor" not in self._missing or self.executor.currentIndex() > 0)
        self.executor.setToolTip(str(self._missing.get("executor", "")))
        by_ray = self.executor.currentData() == "ray"
        self._rows.show_row(self.address, by_ray)
        told = parallel.remark(self.executor.currentData(), self.address.text().strip())
        counts = [count.value() for count in self.counts.values()]
        if self._gpus and (few := parallel.too_few(*counts, self.executor.currentData(), self._gpus)):
            told = few.sentence
        self.note.setVisible(told is not None)
        language.show(self.note.setText, told or "")

    def _count(self) -> QSpinBox:
        count = QSpinBox()
        count.setRange(1, MOST)
        count.lineEdit().setTextMargins(*MARGINS)
        count.valueChanged.connect(self._on_changed)
        return count

    def _on_changed(self, *_value: Any) -> None:
        self._adapt()
        self.changed.emit()

    def _speak(self) -> None:
        for index, value in enumerate(EXECUTORS):
            self.executor.setItemText(index, str(NAMES[value]))
